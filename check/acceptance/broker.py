"""Foreign brokers, and nodes that stand before them."""

from __future__ import annotations

import shutil
import signal
import socket
import subprocess
import threading
from pathlib import Path

from cluster import HOST, free_base, wait_for
from durable import Node


class Mosquitto:
    """One Mosquitto that keeps its port over all its lives; without `persistence` it forgets everything at its end."""

    def __init__(self, directory: Path, *lines: str) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.port, _, _ = free_base(1)
        self.config = directory / "mosquitto.conf"
        self.log = directory / "mosquitto.log"
        text = [f"listener {self.port} {HOST}", "allow_anonymous true", "set_tcp_nodelay true", "user root", "max_queued_messages 100000", *lines]
        self.config.write_text("\n".join(text) + "\n")
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Starts it and waits until it listens."""
        program = shutil.which("mosquitto", path="/usr/sbin:/usr/bin")
        assert program, "mosquitto is missing; ./test installs it"
        with self.log.open("ab") as log:
            self.process = subprocess.Popen([program, "-v", "-c", str(self.config)], stdout=log, stderr=log)
        wait_for("Mosquitto listens", self.listens, 20)

    def listens(self) -> bool:
        """Whether it takes connections."""
        with socket.socket() as probe:
            return probe.connect_ex((HOST, self.port)) == 0

    def kill(self) -> None:
        """kill -9."""
        assert self.process
        self.process.kill()
        self.process.wait(10)

    def signal(self, number: signal.Signals) -> None:
        """Sends it a signal, such as SIGSTOP."""
        assert self.process
        self.process.send_signal(number)

    def stop(self) -> None:
        """Ends it, if it runs."""
        if self.process and self.process.poll() is None:
            self.process.send_signal(signal.SIGCONT)
            self.process.kill()
            self.process.wait(10)


class Sidecar(Node):
    """A node before a broker of its own."""

    def __init__(self, binary: Path, data: Path, *lines: str, upstream: str = "", durability: str = "memory") -> None:
        super().__init__(binary, data, durability, shards=1)
        self.broker = Mosquitto(data.parent / f"{data.name}-broker", *lines)
        self.extra = f'[upstream]\naddress = "{HOST}:{self.broker.port}"\n{upstream}'

    def upstream(self) -> dict[str, object]:
        """What its status says of the broker."""
        found = self.status()["upstream"]
        assert isinstance(found, dict)
        return found


class Impostor:
    """Listens like a broker and answers every connection with the same bytes."""

    def __init__(self, answer: bytes) -> None:
        self.answer = answer
        self.socket = socket.create_server((HOST, 0))
        self.port = self.socket.getsockname()[1]
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self.socket.accept()
            except OSError:
                return
            try:
                connection.recv(1024)
                connection.sendall(self.answer)
            except OSError:
                pass
            connection.close()

    def close(self) -> None:
        """Listens no more."""
        self.socket.close()
