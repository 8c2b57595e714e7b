"""Nodes in network namespaces on one bridge, so that traffic between two of them can really be cut."""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
from pathlib import Path

from apart import Apart
from cluster import wait_for

# A namespace's devices go some time after it: names are not used again.
NUMBERS = itertools.count()


def ip(*words: str) -> None:
    """Runs `ip`."""
    subprocess.run(["ip", *words], check=True, capture_output=True, text=True)


class Spaces:
    """Namespaces on one bridge, each with an address; this process reaches all of them."""

    def _name(self, count: int) -> None:
        number = next(NUMBERS)
        self.count, self.tag = count, f"s{os.getpid() % 100_000}x{number}"
        self.net = f"10.{200 + os.getpid() % 50}.{(os.getpid() // 50 + number) % 250}"
        self.elsewhere: dict[int, str] = {}

    def address(self, node: int) -> str:
        """The address in this namespace."""
        return self.elsewhere.get(node, f"{self.net}.{node + 1}")

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

    def _take_down(self) -> None:
        for node in range(self.count):
            subprocess.run(["ip", "netns", "del", f"{self.tag}n{node}"], capture_output=True, check=False)
        subprocess.run(["ip", "link", "del", f"{self.tag}br"], capture_output=True, check=False)


class Islands(Spaces, Apart):
    """One node in each of `count` namespaces; this process reaches all of them over the bridge."""

    def __init__(self, binary: Path, folder: Path, count: int, **settings: object) -> None:
        self._name(count)
        self.binary, self.folder, self.settings = binary, folder, settings
        self.processes: list[subprocess.Popen[bytes]] = []
        try:
            self._wire_up()
            for node in range(count):
                self.processes.append(self._process(node))
            wait_for("all nodes are ready", lambda: all(self.ready(node) for node in range(count)), 20)
        except BaseException:
            self.stop()
            raise

    def _process(self, node: int) -> subprocess.Popen[bytes]:
        environment = {
            **os.environ,
            "SEDGE_AUTH__ANONYMOUS": "always",
            "SEDGE_CLUSTER__KEY": "a key for this test only",
            "SEDGE_CLUSTER__BIND": self.address(node),
            "SEDGE_CLUSTER__SEEDS": ",".join(f"{self.address(one)}:7883" for one in range(self.count)),
            "SEDGE_MQTT__BIND": self.address(node),
            "SEDGE_HTTP__BIND": self.address(node),
            "SEDGE_NODE__DATA_DIR": str(self.folder / f"node-{node}"),
            **{f"SEDGE_{key.upper()}": str(value) for key, value in self.settings.items()},
        }
        with open(self.folder / f"node-{node}.log", "ab") as log:
            return subprocess.Popen(
                ["ip", "netns", "exec", f"{self.tag}n{node}", str(self.binary), "serve"],
                env=environment, stdout=log, stderr=log)

    def start(self, node: int) -> None:
        """Starts a node anew that has ended, with its data directory and address."""
        assert self.ended(node)
        self.processes[node] = self._process(node)

    def kill(self, *nodes: int) -> None:
        """kill -9 of these, at once."""
        for node in nodes:
            self.processes[node].kill()
        for node in nodes:
            self.processes[node].wait(10)

    def terminate(self, node: int) -> None:
        """Asks a node to stop."""
        self.processes[node].terminate()

    def ended(self, node: int) -> bool:
        """Whether a node's process is gone."""
        return self.processes[node].poll() is not None

    def freeze(self, node: int) -> None:
        """SIGSTOP."""
        self.processes[node].send_signal(signal.SIGSTOP)

    def thaw(self, node: int) -> None:
        """Undoes `freeze`."""
        self.processes[node].send_signal(signal.SIGCONT)

    def cut(self, a: int, b: int) -> None:
        """No packet passes between these two."""
        self.cut_one_way(a, b)
        self.cut_one_way(b, a)

    def join(self, a: int, b: int) -> None:
        """Undoes `cut`."""
        self.join_one_way(a, b)
        self.join_one_way(b, a)

    def cut_one_way(self, a: int, b: int) -> None:
        """No packet passes from the first to the second."""
        ip("-n", f"{self.tag}n{a}", "route", "add", "blackhole", f"{self.address(b)}/32")

    def join_one_way(self, a: int, b: int) -> None:
        """Undoes `cut_one_way`."""
        ip("-n", f"{self.tag}n{a}", "route", "del", "blackhole", f"{self.address(b)}/32")

    def cut_streams(self, a: int, b: int) -> None:
        """No TCP passes between these two, and datagrams do."""
        for one, other in ((a, b), (b, a)):
            ip("-n", f"{self.tag}n{one}", "rule", "add", "to", f"{self.address(other)}/32", "ipproto", "tcp", "prio", "10", "blackhole")

    def join_streams(self, a: int, b: int) -> None:
        """Undoes `cut_streams`."""
        for one, other in ((a, b), (b, a)):
            ip("-n", f"{self.tag}n{one}", "rule", "del", "to", f"{self.address(other)}/32", "ipproto", "tcp", "prio", "10", "blackhole")

    def stop(self) -> None:
        """Ends the processes and takes the namespaces down."""
        for process in self.processes:
            process.send_signal(signal.SIGCONT)
            process.terminate()
        for process in self.processes:
            process.wait(10)
        self._take_down()
