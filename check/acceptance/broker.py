"""Foreign brokers, and nodes that stand before them."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from cluster import HOST, free_base, wait_for
from durable import Node, knows_all
from mqttwire import V5, V311

RECIPES = Path(__file__).parents[2] / "shell/bench/src/compare/recipes.toml"
CONNECT = b"\x10\x0c\x00\x04MQTT\x04\x02\x00\x0a\x00\x00"
# Makes that have no MQTT 5.0.
ONLY_311 = ("nats", "rabbitmq", "moquette")
# Makes behind the nodes of one service, one each, the first a Mosquitto: `./test makes` sets it.
MAKES = os.environ.get("SEDGE_MAKES", "mosquitto,mosquitto,mosquitto").split(",")


class Make:
    """One broker of any make, started as `sedge up --upstream` does it. It keeps its port over all its lives, in which it forgets everything."""

    def __init__(self, make: str, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.make, self.directory = make, directory
        self.port, _, _ = free_base(1)
        self.log = directory / "broker.log"
        self.process: subprocess.Popen[bytes] | None = None

    def version(self, wanted: int) -> int:
        """The protocol version for its own clients, if they want this one."""
        return V311 if self.make in ONLY_311 else wanted

    def command(self) -> list[str]:
        """The command that starts the broker; writes the broker's files."""
        recipes = tomllib.loads(RECIPES.read_text())["broker"]
        recipe = next(recipe for recipe in recipes if recipe["name"] == self.make)
        life = self.directory / "life"
        shutil.rmtree(life, ignore_errors=True)

        def fill(text: str) -> str:
            return str(text.replace("{port}", str(self.port)).replace("{socket}", "").replace("{dir}", str(life)))

        life.mkdir()
        for name, text in recipe.get("files", {}).items():
            (life / name).parent.mkdir(parents=True, exist_ok=True)
            (life / name).write_text(fill(text))
        return ["sh", "-c", fill(recipe["command"])]

    def start(self) -> None:
        """Starts it and waits until it answers."""
        path = f"{os.environ['PATH']}:/usr/sbin:{Path.home()}/go/bin"
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                self.command(), env={**os.environ, "PATH": path}, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)
        wait_for(f"{self.make} answers", self.answers, 90)

    def answers(self) -> bool:
        """Whether it answers a CONNECT, whatever it says."""
        assert self.process and self.process.poll() is None, self.log.read_text()[-2000:]
        try:
            with socket.create_connection((HOST, self.port), timeout=1) as probe:
                probe.sendall(CONNECT)
                return probe.recv(1) == b"\x20"
        except OSError:
            return False

    def kill(self) -> None:
        """kill -9."""
        self.signal(signal.SIGKILL)
        assert self.process
        self.process.wait(10)

    def signal(self, number: signal.Signals) -> None:
        """Sends it, and all that it has started, a signal, such as SIGSTOP."""
        assert self.process
        os.killpg(self.process.pid, number)

    def stop(self) -> None:
        """Ends it, if it runs."""
        if self.process and self.process.poll() is None:
            self.signal(signal.SIGCONT)
            self.kill()


class Mosquitto(Make):
    """One Mosquitto; without `persistence` among its lines it forgets everything at its end."""

    def __init__(self, directory: Path, *lines: str) -> None:
        super().__init__("mosquitto", directory)
        self.config = directory / "mosquitto.conf"
        self.log = directory / "mosquitto.log"
        # The path of a Unix socket has to be short; nobody else has the port.
        self.socket = Path(tempfile.gettempdir()) / f"sedge-broker-{self.port}.sock"
        text = [f"listener 0 {self.socket}", f"listener {self.port} {HOST}", "allow_anonymous true", "set_tcp_nodelay true", "user root", "max_queued_messages 100000", *lines]
        self.config.write_text("\n".join(text) + "\n")

    def stop(self) -> None:
        """Ends it, if it runs, and removes its socket."""
        super().stop()
        self.socket.unlink(missing_ok=True)

    def command(self) -> list[str]:
        """The command that starts the broker."""
        program = shutil.which("mosquitto", path="/usr/sbin:/usr/bin")
        assert program, "mosquitto is missing; ./test installs it"
        return [program, "-v", "-c", str(self.config)]

    def answers(self) -> bool:
        """Whether it takes connections."""
        with socket.socket() as probe:
            return probe.connect_ex((HOST, self.port)) == 0


class Sidecar(Node):
    """A node before a broker of its own."""

    def __init__(
        self, binary: Path, data: Path, *lines: str, upstream: str = "", durability: str = "memory", make: str = "mosquitto", local: bool = False,
    ) -> None:
        super().__init__(binary, data, durability, shards=1)
        beside = data.parent / f"{data.name}-broker"
        self.broker = Mosquitto(beside, *lines) if make == "mosquitto" else Make(make, beside)
        # `local`: by the broker's Unix socket, if it has one.
        address = f"unix:{self.broker.socket}" if local and isinstance(self.broker, Mosquitto) else f"{HOST}:{self.broker.port}"
        self.extra = f'[upstream]\naddress = "{address}"\n{upstream}'

    def upstream(self) -> dict[str, object]:
        """The part of the node's status about the broker."""
        found = self.status()["upstream"]
        assert isinstance(found, dict)
        return found


@contextmanager
def running(nodes: list[Sidecar]) -> Iterator[None]:
    """Starts these nodes, which know each other's addresses, and their brokers, and ends them."""
    for node in nodes:
        node.seeds = [f"{HOST}:{other.cluster}" for other in nodes if other is not node]
    try:
        for node in nodes:
            node.broker.start()
            node.start()
        wait_for("they know each other", lambda: all(knows_all(node, len(nodes)) for node in nodes), 30)
        yield
    finally:
        for node in nodes:
            node.stop()
            node.broker.stop()


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
