"""A Mosquitto at the other end of a bridge, and clients that count the messages that go there and come."""

from __future__ import annotations

import shutil
import signal
import socket
import subprocess
import threading
import time
from pathlib import Path

from client import Client, ClientError
from cluster import HOST, is_free, wait_for
from mqttwire import V5, T


class Remote:
    """A Mosquitto of a test's own, which keeps its port over all its lives."""

    def __init__(self, directory: Path, port: int, more: str = "", within: tuple[str, str] | None = None) -> None:
        """`within`: a network namespace and its address."""
        program = shutil.which("mosquitto", path="/usr/sbin:/usr/bin")
        assert program, "mosquitto is missing; ./test installs it"
        self.directory, self.port = directory, port
        config = directory / f"remote-{port}.conf"
        self.space, self.host = within or ("", HOST)
        config.write_text(f"listener {port} {self.host}\nallow_anonymous true\nmax_queued_messages 0\nmax_inflight_messages 0\n{more}")
        self.command = [*(["ip", "netns", "exec", self.space] if within else []), program, "-v", "-c", str(config)]
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> Remote:
        """Starts it and waits until it listens."""
        with (self.directory / f"remote-{self.port}.log").open("ab") as log:
            self.process = subprocess.Popen(self.command, stdout=log, stderr=log)
        wait_for("the remote broker listens", self._listens)
        return self

    def _listens(self) -> bool:
        if not self.space:
            return not is_free(self.port)
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
        """Ends it, if it runs."""
        if self.process and self.process.poll() is None:
            self.process.send_signal(signal.SIGCONT)
            self.process.terminate()
            self.process.wait(10)

    def client(self, name: str) -> Client:
        """A client that is connected to it."""
        client = Client(HOST, self.port, V5, timeout=10)
        client.connect(name)
        return client


class Collector:
    """A subscriber with a thread: takes everything at once, and comes again when its broker does."""

    def __init__(self, port: int, filter_: str, qos: int = 2, host: str = HOST, patience: float = 10) -> None:
        """`patience`: seconds that the broker may take for an answer."""
        self.port, self.filter, self.qos, self.host, self.patience = port, filter_, qos, host, patience
        self.payloads: list[str] = []
        self.topics: list[str] = []
        self.identities: list[str] = []  # what the cluster calls each publication
        self.ready = threading.Event()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        assert self.ready.wait(20), "the subscriber is not ready"

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                self._session()
            except (OSError, ClientError, AssertionError):
                self.ready.clear()
                self._stop.wait(0.05)

    def _session(self) -> None:
        client = Client(self.host, self.port, V5, timeout=self.patience)
        client.connect(f"collector-{self.port}")
        client.subscribe(self.filter, qos=self.qos)
        self.ready.set()
        while not self._stop.is_set():
            try:
                got = client._find(T.PUBLISH, 0.2)
            except ClientError as error:
                if "deadline" in str(error):
                    while client.inbox:
                        rest = client.inbox.popleft()
                        if rest.type == T.PUBREL:
                            client.ack(T.PUBCOMP, rest.pid)
                    continue
                raise
            self.topics.append(got.topic)
            self.identities.append(dict(got.props.get("user_property", [])).get("sedge-id", ""))
            self.payloads.append(bytes(got.payload).decode())
            if got.qos == 1:
                client.ack(T.PUBACK, got.pid)
            elif got.qos == 2:
                client.ack(T.PUBREC, got.pid)
            for rest in [one for one in client.inbox if one.type == T.PUBREL]:
                client.inbox.remove(rest)
                client.ack(T.PUBCOMP, rest.pid)
        client.close()

    def stop(self) -> None:
        """Ends it."""
        self._stop.set()
        self._thread.join(20)


class Load:
    """A publisher with a thread: numbers, each acknowledged before it counts as sent."""

    def __init__(self, port: int, topic: str, qos: int) -> None:
        self.acknowledged: list[str] = []
        self._client = Client(HOST, port, V5, timeout=30)
        self._client.connect(f"load-{topic.replace('/', '-')}")
        self._topic, self._qos = topic, qos
        self._stop = threading.Event()
        self.longest = 0.0  # seconds that an acknowledgement took
        self.failure: Exception | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        number = 0
        try:
            while not self._stop.is_set():
                began = time.monotonic()
                self._client.publish(self._topic, str(number), qos=self._qos)
                self.longest = max(self.longest, time.monotonic() - began)
                self.acknowledged.append(str(number))
                number += 1
                self._stop.wait(0.001)  # a load that leaves the machine to others, too
        except (OSError, ClientError, AssertionError) as error:
            self.failure = error

    def has_sent(self, count: int) -> bool:
        """Whether so many are acknowledged."""
        assert self.failure is None, self.failure
        return len(self.acknowledged) >= count

    def abandon(self) -> list[str]:
        """Ends it when its broker is gone; returns the acknowledged messages."""
        self._stop.set()
        self._client.close()
        self._thread.join(40)
        return self.acknowledged

    def stop(self) -> list[str]:
        """Ends it; returns the acknowledged messages."""
        self._stop.set()
        self._thread.join(30)
        assert self.failure is None, self.failure
        return self.acknowledged
