"""A Kafka of a test's own: one process, broker and controller."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
from pathlib import Path

from cluster import HOST, free_base, wait_for

# Folder with the jars of Kafka; `./test kafka` fetches them.
JARS = os.environ.get("SEDGE_KAFKA", "")
JAVA = ["java", "-Xms64m", "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
SETTINGS = """\
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@{host}:{controller}
listeners=PLAINTEXT://{host}:{port},CONTROLLER://{host}:{controller}
advertised.listeners=PLAINTEXT://{host}:{port}
controller.listener.names=CONTROLLER
inter.broker.listener.name=PLAINTEXT
log.dirs={data}
num.partitions=2
offsets.topic.replication.factor=1
offsets.topic.num.partitions=4
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
group.initial.rebalance.delay.ms=0
"""
LOG = """\
log4j.rootLogger=WARN, out
log4j.appender.out=org.apache.log4j.ConsoleAppender
log4j.appender.out.target=System.err
log4j.appender.out.layout=org.apache.log4j.PatternLayout
log4j.appender.out.layout.ConversionPattern=%d %p %m%n
"""


class Kafka:
    """One broker that keeps its port and its data over all its lives."""

    def __init__(self, directory: Path, accounts: dict[str, str] | None = None, certificate: Path | None = None) -> None:
        """`accounts`: users and passwords of a second listener, which `certificate` (PEM, with its key) encrypts."""
        assert shutil.which("java"), "java is missing"
        self.directory = directory
        self.port, self.controller, self.guarded = free_base(1)
        data = directory / "kafka-data"
        self.settings = directory / "server.properties"
        text = SETTINGS.format(host=HOST, port=self.port, controller=self.controller, data=data)
        self.settings.write_text(self._guard(text, accounts, certificate) if accounts else text)
        (directory / "log4j.properties").write_text(LOG)
        self._run("kafka.tools.StorageTool", "format", "-t", "AAAAAAAAAAAAAAAAAAAAAQ", "-c", str(self.settings))
        self.process: subprocess.Popen[bytes] | None = None

    def _guard(self, text: str, accounts: dict[str, str], certificate: Path | None) -> str:
        """Settings with a listener for users with a password."""
        kind = "SASL_SSL" if certificate else "SASL_PLAINTEXT"
        own = f"listener.name.{kind.lower()}."
        users = " ".join(f'user_{user}="{password}"' for user, password in accounts.items())
        lines = [f'{own}plain.sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required {users};', f"{own}sasl.enabled.mechanisms=PLAIN",
                 f"listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,{kind}:{kind}"]
        if certificate:
            lines += [f"{own}ssl.keystore.type=PEM", f"{own}ssl.keystore.location={certificate}"]
        listener = f"{kind}://{HOST}:{self.guarded}"
        text = text.replace("\nlisteners=", f"\nlisteners={listener},").replace("\nadvertised.listeners=", f"\nadvertised.listeners={listener},")
        return text + "".join(f"{line}\n" for line in lines)

    def _command(self, main: str, *arguments: str) -> list[str]:
        log = f"-Dlog4j.configuration=file:{self.directory}/log4j.properties"
        return [*JAVA, log, "-cp", f"{JARS}/*", main, *arguments]

    def _run(self, main: str, *arguments: str, text: str = "") -> str:
        done = subprocess.run(
            self._command(main, *arguments), input=text, capture_output=True, text=True, timeout=120, check=False)
        assert done.returncode == 0, done.stderr[-2000:]
        return done.stdout

    def start(self) -> Kafka:
        """Starts it and waits until it answers."""
        with (self.directory / "kafka.log").open("ab") as log:
            self.process = subprocess.Popen(self._command("kafka.Kafka", str(self.settings)), stdout=log, stderr=log)
        wait_for("Kafka listens", self._listens, 90)
        return self

    def _listens(self) -> bool:
        assert self.process and self.process.poll() is None, (self.directory / "kafka.log").read_text()[-2000:]
        with socket.socket() as probe:
            return probe.connect_ex((HOST, self.port)) == 0

    def signal(self, number: signal.Signals) -> None:
        """Sends it a signal."""
        assert self.process
        self.process.send_signal(number)

    def kill(self) -> None:
        """kill -9."""
        assert self.process
        self.process.kill()
        self.process.wait(10)

    def stop(self) -> None:
        """Ends it."""
        if self.process and self.process.poll() is None:
            self.kill()

    def consume(self, topic: str, seconds: int = 8) -> list[tuple[dict[str, str], str, str]]:
        """All records of a topic as (headers, key, value), partition by partition."""
        out = self._run(
            "org.apache.kafka.tools.consumer.ConsoleConsumer", "--bootstrap-server", f"{HOST}:{self.port}", "--topic", topic,
            "--from-beginning", "--timeout-ms", str(seconds * 1000), "--property", "print.key=true",
            "--property", "print.headers=true", "--property", "headers.separator=;")
        found = []
        for line in out.splitlines():
            headers, key, value = line.split("\t")
            found.append((dict(one.split(":", 1) for one in headers.split(";")), key, value))
        return found

    def produce(self, topic: str, records: list[tuple[str, str]]) -> None:
        """Records (key, value)."""
        self._run(
            "kafka.tools.ConsoleProducer", "--bootstrap-server", f"{HOST}:{self.port}", "--topic", topic,
            "--property", "parse.key=true", text="".join(f"{key}\t{value}\n" for key, value in records))

    def create(self, topic: str) -> None:
        """A topic."""
        self._run(
            "org.apache.kafka.tools.TopicCommand", "--bootstrap-server", f"{HOST}:{self.port}", "--create", "--topic", topic)
