"""Clusters of real processes, and how to look at them from outside."""

from __future__ import annotations

import itertools
import json
import os
import random
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

Found = TypeVar("Found")
HOST = "127.0.0.1"
# Makes of brokers behind the nodes of clusters that name none: `./test upstream` sets it.
UPSTREAM = tuple(filter(None, os.environ.get("SEDGE_UPSTREAM_MAKES", "").split(",")))
TURNS = itertools.count()
# How far the ports of these brokers are above those of their nodes.
BROKERS_APART = 4_000
# Which of how many processes that run tests at once this one is: each has ranges of ports of its own.
WORKER = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
WORKERS = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
GIVEN: deque[int] = deque(maxlen=100)  # what `free_base` has handed out: a node may bind its ports long after it got them


def wait_for(what: str, condition: Callable[[], Found], seconds: float = 10.0) -> Found:
    """Waits until `condition` gives something true; fails with `what` and its last value at the deadline."""
    deadline = time.monotonic() + seconds
    while True:
        found = condition()
        if found:
            return found
        assert time.monotonic() < deadline, f"not within {seconds} s: {what}; last seen: {found!r}"
        time.sleep(0.01)  # pause between two looks, bounded by the deadline


def next_makes(nodes: int) -> list[str]:
    """The makes behind so many nodes: all of them have their turn, whichever number of nodes a cluster has."""
    return [UPSTREAM[next(TURNS) % len(UPSTREAM)] for _ in range(nodes)]


def free_base(count: int) -> tuple[int, int, int]:
    """First ports of three free ranges (MQTT, HTTP, cluster) of `count` ports each, below those that the system hands out, as are those of brokers
    that `sedge up` starts behind nodes."""
    for _ in range(300):
        base = random.SystemRandom().randrange(11_000 + 30 * WORKER, 28_000, 30 * WORKERS)
        bases = (base, base + 10, base + 20)
        if base not in GIVEN and all(is_free(start + offset) for start in (*bases, base + BROKERS_APART) for offset in range(count)):
            GIVEN.append(base)
            return bases
    raise RuntimeError("no free ports")


def is_free(port: int) -> bool:
    """Whether nobody has this port, TCP or UDP."""
    for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
        with socket.socket(type=kind) as probe:
            try:
                probe.bind((HOST, port))
            except OSError:
                return False
    return True


def get(url: str, seconds: float = 5.0) -> Any:
    """The JSON (or text) at this address."""
    with urllib.request.urlopen(url, timeout=seconds) as answer:
        body = answer.read().decode()
    return json.loads(body) if body[:1] in "{[" else body


def metric(port: int, name: str, **labels: str) -> float:
    """Sum of a metric's values at one node over all samples whose labels include these."""
    total, found = 0.0, False
    for line in get(f"http://{HOST}:{port}/metrics").splitlines():
        head, _, value = line.rpartition(" ")
        sample, _, inside = head.partition("{")
        if sample == name and all(f'{key}="{wanted}"' in inside for key, wanted in labels.items()):
            total, found = total + float(value), True
    assert found, f"no metric {name} {labels}"
    return total


def resident_kib(pid: int) -> int:
    """Resident memory of a process."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1])
    raise AssertionError(f"no VmRSS of {pid}")


def alive(pid: int) -> bool:
    """Whether a process runs (a zombie does not)."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


class Cluster:
    """A cluster started by `sedge up`."""

    def __init__(self, binary: Path, data: Path, nodes: int = 3, *options: str) -> None:
        self.binary, self.data, self.nodes = binary, data, nodes
        self.port, self.http, self.cluster = free_base(nodes)
        if UPSTREAM and "--upstream" not in options:
            options = (*options, "--upstream", ",".join(next_makes(nodes)))
        command = [
            str(binary), "up", "--nodes", str(nodes), "--port", str(self.port), "--http-port", str(self.http),
            "--cluster-port", str(self.cluster), "--data-dir", str(data), *options,
        ]
        self.log = open(data.parent / f"{data.name}.log", "w+")  # noqa: SIM115 (lives as long as the cluster)
        started = time.monotonic()
        self.process = subprocess.Popen(command, stdout=self.log, stderr=subprocess.STDOUT)
        try:
            # Brokers of some makes behind the nodes take their time to start.
            wait_for("all nodes are ready", self._ready, 120 if "--upstream" in options else 30)
        except BaseException:
            said = self.output()
            self.stop()
            raise AssertionError(f"the cluster did not start:\n{said}") from None
        self.seconds_to_ready = time.monotonic() - started
        self.pids = self._children()

    def _ready(self) -> bool:
        if self.process.poll() is not None:
            raise RuntimeError(f"`sedge up` ended with {self.process.returncode}")
        # Its last words: before them `sedge up` takes the end of a node for a failure to start.
        return "Stop with" in self.output() and all(self.is_ready(node) for node in range(self.nodes))

    def _children(self) -> list[int]:
        """The nodes' processes, by node: the child whose command line holds the node's port."""
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()
        commands = {int(pid): Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0") for pid in children}
        found = []
        for port in self.ports():
            found += [pid for pid, words in commands.items() if b"serve" in words and str(port).encode() in words]
        assert len(found) == self.nodes, commands
        return found

    def output(self) -> str:
        """The output of `sedge up`."""
        self.log.flush()
        return Path(self.log.name).read_text()

    def ports(self) -> list[int]:
        """The MQTT ports."""
        return [self.port + node for node in range(self.nodes)]

    def is_ready(self, node: int) -> bool:
        """Whether this node says that it is ready."""
        try:
            get(f"http://{HOST}:{self.http + node}/health/ready", 2)
        except (OSError, urllib.error.HTTPError):
            return False
        return True

    def api(self, node: int, path: str) -> Any:
        """An answer of the status API."""
        return get(f"http://{HOST}:{self.http + node}/api/v1/{path}")

    def token(self) -> str:
        """The token for requests that change something."""
        return (self.data / "api-token").read_text()

    def status(self, node: int) -> dict[str, Any]:
        """The status of one node."""
        found: dict[str, Any] = self.api(node, "status")
        return found

    def routes(self, node: int) -> list[dict[str, Any]]:
        """The subscription routing table of one node."""
        found: list[dict[str, Any]] = self.api(node, "routes?limit=1000")["routes"]
        return found

    def metric(self, node: int, name: str, **labels: str) -> float:
        """See `metric`."""
        return metric(self.http + node, name, **labels)

    def kill(self, node: int) -> None:
        """kill -9 of one node."""
        os.kill(self.pids[node], signal.SIGKILL)

    def stop(self) -> int:
        """Ctrl-C; returns the exit code."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)
        try:
            return self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise AssertionError(f"the cluster did not stop:\n{self.output()}") from None
        finally:
            self.log.close()
