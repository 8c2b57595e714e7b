"""Nodes in network namespaces on one bridge, so that traffic between two of them can really be cut."""

from __future__ import annotations

import itertools
import os
import subprocess
from pathlib import Path

from apart import Apart
from cluster import wait_for

# A namespace's devices go some time after it: names are not used again.
NUMBERS = itertools.count()


def ip(*words: str) -> None:
    """Runs `ip`."""
    subprocess.run(["ip", *words], check=True, capture_output=True, text=True)


class Islands(Apart):
    """One node in each of `count` namespaces; this process reaches all of them over the bridge."""

    def __init__(self, binary: Path, folder: Path, count: int) -> None:
        number = next(NUMBERS)
        self.count, self.tag = count, f"s{os.getpid() % 100_000}x{number}"
        self.net = f"10.{200 + os.getpid() % 50}.{(os.getpid() // 50 + number) % 250}"
        self.processes: list[subprocess.Popen[bytes]] = []
        try:
            self._wire_up()
            for node in range(count):
                self._start(binary, folder, node)
            wait_for("all nodes are ready", lambda: all(self.ready(node) for node in range(count)), 20)
        except BaseException:
            self.stop()
            raise

    def _wire_up(self) -> None:
        ip("link", "add", f"{self.tag}br", "type", "bridge")
        ip("addr", "add", f"{self.net}.254/24", "dev", f"{self.tag}br")
        ip("link", "set", f"{self.tag}br", "up")
        for node in range(self.count):
            space, outer = f"{self.tag}n{node}", f"{self.tag}v{node}"
            ip("netns", "add", space)
            ip("link", "add", outer, "type", "veth", "peer", "name", "eth0", "netns", space)
            ip("link", "set", outer, "master", f"{self.tag}br")
            ip("link", "set", outer, "up")
            ip("-n", space, "link", "set", "lo", "up")
            ip("-n", space, "link", "set", "eth0", "up")
            ip("-n", space, "addr", "add", f"{self.address(node)}/24", "dev", "eth0")

    def _start(self, binary: Path, folder: Path, node: int) -> None:
        environment = {
            **os.environ,
            "SEDGE_AUTH__ANONYMOUS": "always",
            "SEDGE_CLUSTER__KEY": "a key for this test only",
            "SEDGE_CLUSTER__BIND": self.address(node),
            "SEDGE_CLUSTER__SEEDS": ",".join(f"{self.address(one)}:7883" for one in range(self.count)),
            "SEDGE_MQTT__BIND": self.address(node),
            "SEDGE_HTTP__BIND": self.address(node),
            "SEDGE_NODE__DATA_DIR": str(folder / f"node-{node}"),
        }
        log = open(folder / f"node-{node}.log", "wb")  # noqa: SIM115 (the process keeps it)
        self.processes.append(subprocess.Popen(
            ["ip", "netns", "exec", f"{self.tag}n{node}", str(binary), "serve"], env=environment, stderr=log))

    def address(self, node: int) -> str:
        """The node's address."""
        return f"{self.net}.{node + 1}"

    def cut(self, a: int, b: int) -> None:
        """No packet passes between these two."""
        for one, other in ((a, b), (b, a)):
            ip("-n", f"{self.tag}n{one}", "route", "add", "blackhole", f"{self.address(other)}/32")

    def join(self, a: int, b: int) -> None:
        """Undoes `cut`."""
        for one, other in ((a, b), (b, a)):
            ip("-n", f"{self.tag}n{one}", "route", "del", "blackhole", f"{self.address(other)}/32")

    def stop(self) -> None:
        """Ends the processes and takes the namespaces down."""
        for process in self.processes:
            process.terminate()
        for process in self.processes:
            process.wait(10)
        for node in range(self.count):
            subprocess.run(["ip", "netns", "del", f"{self.tag}n{node}"], capture_output=True, check=False)
        subprocess.run(["ip", "link", "del", f"{self.tag}br"], capture_output=True, check=False)
