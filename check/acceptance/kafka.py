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
process.roles={roles}
node.id={number}
controller.quorum.voters=1@{controller}
listeners=PLAINTEXT://{host}:{port}{controls}
advertised.listeners=PLAINTEXT://{host}:{port}
controller.listener.names=CONTROLLER
inter.broker.listener.name=PLAINTEXT
log.dirs={data}
num.partitions=2
default.replication.factor={copies}
offsets.topic.replication.factor={copies}
offsets.topic.num.partitions=4
transaction.state.log.replication.factor={copies}
transaction.state.log.num.partitions=4
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

    def __init__(
        self, directory: Path, accounts: dict[str, str] | None = None, certificate: Path | None = None, *,
        detour: str = "", within: tuple[str, str] | None = None, first: Kafka | None = None, copies: int = 1,
    ) -> None:
        """`accounts`: users and passwords of a second listener, which `certificate` (PEM, with its key) encrypts; `detour`: host and port by which
        others are to reach that listener; `within`: a network namespace and its address; `first`: the broker whose cluster this one joins;
        `copies`: how many brokers have each partition."""
        assert shutil.which("java"), "java is missing"
        self.directory = directory
        self.space, self.host = within or ("", HOST)
        self.port, controller, self.guarded = free_base(1)
        self.controller = first.controller if first else f"{HOST}:{controller}"
        data = directory / "kafka-data"
        self.settings = directory / "server.properties"
        text = SETTINGS.format(
            host=self.host, port=self.port, controller=self.controller, data=data, copies=copies, number=2 if first else 1,
            roles="broker" if first else "broker,controller", controls="" if first else f",CONTROLLER://{self.controller}")
        if accounts:
            text = self._guard(text, accounts, certificate)
        if detour:
            text = self._listen(text, "DETOUR", detour)
        self.settings.write_text(text)
        (directory / "log4j.properties").write_text(LOG)
        self._run("kafka.tools.StorageTool", "format", "-t", "AAAAAAAAAAAAAAAAAAAAAQ", "-c", str(self.settings))
        self.process: subprocess.Popen[bytes] | None = None

    def _guard(self, text: str, accounts: dict[str, str], certificate: Path | None) -> str:
        """Settings with a listener for users with a password."""
        kind = "SASL_SSL" if certificate else "SASL_PLAINTEXT"
        own = f"listener.name.{kind.lower()}."
        users = " ".join(f'user_{user}="{password}"' for user, password in accounts.items())
        text = self._listen(text, kind, f"{self.host}:{self.guarded}")
        lines = [f'{own}plain.sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required {users};', f"{own}sasl.enabled.mechanisms=PLAIN",
                 f"{own}ssl.client.auth=none"]
        if certificate:
            lines += [f"{own}ssl.keystore.type=PEM", f"{own}ssl.keystore.location={certificate}"]
        return text + "".join(f"{line}\n" for line in lines)

    def _listen(self, text: str, kind: str, advertised: str) -> str:
        """Settings with one more listener."""
        text = text.replace("\nlisteners=", f"\nlisteners={kind}://{self.host}:{self.guarded},")
        text = text.replace("\nadvertised.listeners=", f"\nadvertised.listeners={kind}://{advertised},")
        protocol = "PLAINTEXT" if kind == "DETOUR" else kind
        return text + f"listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,{kind}:{protocol}\n"

    def _command(self, main: str, *arguments: str, space: str = "") -> list[str]:
        log = f"-Dlog4j.configuration=file:{self.directory}/log4j.properties"
        return [*(["ip", "netns", "exec", space] if space else []), *JAVA, log, "-cp", f"{JARS}/*", main, *arguments]

    def _run(self, main: str, *arguments: str, text: str = "") -> str:
        done = subprocess.run(
            self._command(main, *arguments), input=text, capture_output=True, text=True, timeout=120, check=False)
        assert done.returncode == 0, done.stderr[-2000:]
        return done.stdout

    def start(self) -> Kafka:
        """Starts it and waits until it answers."""
        with (self.directory / "kafka.log").open("ab") as log:
            self.process = subprocess.Popen(self._command("kafka.Kafka", str(self.settings), space=self.space), stdout=log, stderr=log)
        wait_for("Kafka listens", self._listens, 90)
        return self

    def _listens(self) -> bool:
        assert self.process and self.process.poll() is None, (self.directory / "kafka.log").read_text()[-2000:]
        with socket.socket() as probe:
            return probe.connect_ex((self.host, self.port)) == 0

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

    def consume(self, topic: str, seconds: int = 8, committed: bool = False) -> list[tuple[dict[str, str], str, str]]:
        """All records of a topic as (headers, key, value), partition by partition; `committed`: without those of transactions that are not."""
        out = self._run(
            "org.apache.kafka.tools.consumer.ConsoleConsumer", "--bootstrap-server", f"{self.host}:{self.port}", "--topic", topic,
            "--from-beginning", "--timeout-ms", str(seconds * 1000), "--property", "print.key=true",
            "--property", "print.headers=true", "--property", "headers.separator=;", "--isolation-level",
            "read_committed" if committed else "read_uncommitted")
        found = []
        for line in out.splitlines():
            headers, key, value = line.split("\t")
            found.append((dict(one.split(":", 1) for one in headers.split(";")), key, value))
        return found

    def produce(self, topic: str, records: list[tuple[str, str]]) -> None:
        """Records (key, value)."""
        self._run(
            "kafka.tools.ConsoleProducer", "--bootstrap-server", f"{self.host}:{self.port}", "--topic", topic,
            "--property", "parse.key=true", text="".join(f"{key}\t{value}\n" for key, value in records))

    def create(self, topic: str, *options: str) -> None:
        """A topic."""
        self._topics("--create", "--topic", topic, *options)

    def _topics(self, *arguments: str) -> str:
        return self._run("org.apache.kafka.tools.TopicCommand", "--bootstrap-server", f"{self.host}:{self.port}", *arguments)

    def leader(self, topic: str) -> int:
        """Number of the broker that leads the first partition of a topic; 0: none."""
        _, _, rest = self._topics("--describe", "--topic", topic).partition("Leader: ")
        return int(number) if (number := rest.split("\t")[0].strip()).isdigit() else 0
