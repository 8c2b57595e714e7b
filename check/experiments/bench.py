"""Runs `sedge bench` and reads its report."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from marked import free_ports  # noqa: E402

NODES = 4
# Ports of nodes for clients, other nodes and HTTP, and those of the brokers behind them.
ABOVE = (0, 100, 200, 300)
SIDECARS = ("--nodes", str(NODES), "--upstream", "mosquitto")
NATIVE = ("--nodes", str(NODES))
# As many copies of each session as `sedge up` has with four nodes, so that two may die at once.
COPIES = {"SEDGE_CLUSTER__COPIES": "3"}
SINGLE = ("--nodes", "1", "--recipe", "mosquitto-line")


class Bench:
    """The program that measures."""

    def __init__(self, binary: Path) -> None:
        self.binary = binary

    def __call__(self, *words: object, timeout: int = 900) -> Any:
        """The report of `sedge bench`, as JSON. Brokers that it starts get ports that are free."""
        command = [str(self.binary), "bench", *map(str, words), "--json", "--quiet"]
        if "--broker" not in words:
            command += ["--port", str(free_ports(10, ABOVE))]
        done = subprocess.run(command, capture_output=True, text=True, timeout=timeout, check=False, env={**os.environ, **COPIES})
        if done.returncode:
            sys.exit(f"{' '.join(command)}\n{done.stderr}")
        return json.loads(done.stdout)

    def installed(self) -> set[str]:
        """Makes of brokers that can be started here."""
        listed = subprocess.run([str(self.binary), "bench", "compare"], capture_output=True, text=True, check=True).stdout
        lines = [line.split(maxsplit=1) for line in listed.splitlines()]
        return {line[0] for line in lines if len(line) == 2 and line[1].startswith("installed")}


class Restarted:
    """A Mosquitto alone that is started again some seconds after it has died."""

    def __init__(self, after: float) -> None:
        self.port, self.after = free_ports(1), after
        self.folder = tempfile.TemporaryDirectory()
        self.config = Path(self.folder.name) / "mosquitto.conf"
        self.config.write_text(f"listener {self.port} 127.0.0.1\nallow_anonymous true\nset_tcp_nodelay true\nmax_queued_messages 100000\n")
        self.ending = threading.Event()
        self.process = self.start()
        self.watcher = threading.Thread(target=self.watch)
        self.watcher.start()

    def start(self) -> subprocess.Popen[bytes]:
        """Starts it, and waits until it answers."""
        process = subprocess.Popen(["mosquitto", "-c", str(self.config)], stderr=subprocess.DEVNULL)
        deadline = time.monotonic() + 10
        while subprocess.run(["mosquitto_pub", "-p", str(self.port), "-t", "up", "-n"], stderr=subprocess.DEVNULL, check=False).returncode:
            if time.monotonic() > deadline:
                sys.exit("Mosquitto does not start")
        return process

    def watch(self) -> None:
        """Starts it again until it is to end."""
        while True:
            self.process.wait()
            if self.ending.wait(self.after):
                return
            self.process = self.start()
            if self.ending.is_set():
                self.process.terminate()

    def end(self) -> None:
        """Ends it for good."""
        self.ending.set()
        self.process.terminate()
        self.watcher.join()
        self.folder.cleanup()


def killed(numbers: tuple[int, ...], at: float = 0, how: str = "kill") -> list[str]:
    """Faults: these nodes and the brokers behind them."""
    return [word for number in numbers for what in ("node", "broker") for word in ("--fault", f"{at}:{how}:{what}-{number}")]
