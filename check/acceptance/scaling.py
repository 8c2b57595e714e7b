"""A site of `sedge scale`: its file, its controller, its state."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import time
import urllib.request
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mqttwire as w
from chaos import judge
from cluster import HOST, free_base, wait_for
from mqttwire import V311
from swarm import Swarm

SITE = """\
driver: process
max_actions_per_hour: 3600
resources:
  brokers: {{type: group, member: {{type: broker{limits}}}, min: {least}, max: {most}}}
  lb: {{type: loadbalancer, backend: "${{brokers}}", algorithm: {algorithm}, port: {port}, maxconn: {maxconn}, check_interval: 200ms}}
  high: {{type: alarm, metric: {metric}, of: "${{brokers}}", stat: mean, period: {period}, evaluations: 1, op: ">", threshold: {high}, action: "${{out}}"}}
  low: {{type: alarm, metric: {metric}, of: "${{brokers}}", stat: mean, period: {period}, evaluations: 1, op: "<", threshold: {low}, action: "${{in}}"}}
  out: {{type: policy, group: "${{brokers}}", adjust: +1, cooldown: {cooldown}}}
  in: {{type: policy, group: "${{brokers}}", adjust: -1, cooldown: {cooldown}}}
"""


def has_haproxy() -> bool:
    """Whether HAProxy is installed, also where Debian puts it."""
    return shutil.which("haproxy", path=f"{os.environ['PATH']}:/usr/sbin") is not None


def has_control_groups() -> bool:
    """Whether processor time can be limited here."""
    folders = [Path("/sys/fs/cgroup/cgroup.controllers"), Path("/sys/fs/cgroup/cpu/cpu.cfs_quota_us")]
    return os.geteuid() == 0 and any(os.access(folder.parent, os.W_OK) and folder.exists() for folder in folders)


class Site:
    """One site with everything that is kept of it in a folder of the test."""

    def __init__(self, binary: Path, folder: Path) -> None:
        self.binary, self.folder = binary, folder
        self.file = folder / "site.yaml"
        self.port = free_base(1)[0]
        self.env = os.environ | {"SEDGE_SCALE_DIR": str(folder / "state")}
        self.controller: subprocess.Popen[bytes] | None = None
        self.settings: dict[str, Any] = {
            "least": 1, "most": 3, "algorithm": "leastconn", "maxconn": 50_000, "high": 50, "low": 5, "cooldown": "5s",
            "metric": "connections", "period": "2s", "limits": "",
        }

    def write(self, **changes: Any) -> None:
        """Writes the file."""
        self.settings |= changes
        self.file.write_text(SITE.format(port=self.port, **self.settings))

    def call(self, *arguments: str, code: int = 0) -> str:
        """Runs a command of `sedge`."""
        done = subprocess.run([self.binary, *arguments], env=self.env, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == code, f"{arguments}: {done.returncode}\n{done.stdout}{done.stderr}"
        return done.stdout + done.stderr

    def start(self) -> None:
        """Starts the controller."""
        log = (self.folder / "controller.log").open("ab")
        self.controller = subprocess.Popen([self.binary, "scale", "run", self.file], env=self.env, stdout=log, stderr=log)

    def end_controller(self, how: signal.Signals = signal.SIGTERM) -> None:
        """Ends the controller; its nodes go on."""
        if self.controller is not None:
            self.controller.send_signal(how)
            self.controller.wait(20)
            self.controller = None

    def status(self) -> dict[str, Any]:
        """The report of `sedge scale status --json`."""
        found: dict[str, Any] = json.loads(self.call("scale", "status", "--json"))
        return found

    def nodes(self) -> list[dict[str, Any]]:
        """The nodes of the group."""
        try:
            return list(self.status()["groups"]["brokers"]["nodes"])
        except AssertionError:
            return []  # The controller has not said anything yet.

    def ask(self, node: dict[str, Any], path: str, method: str = "GET") -> str:
        """The answer of a node's HTTP API."""
        token = json.loads(next(self.folder.glob("state/*/state.json")).read_text())["token"]
        request = urllib.request.Request(f"http://{node['http']}{path}", headers={"Authorization": f"Bearer {token}"}, method=method)
        with urllib.request.urlopen(request, timeout=10) as answer:
            return str(answer.read().decode())

    def serving(self) -> int:
        """Nodes that serve."""
        return sum(node["state"] == "serving" for node in self.nodes())

    def wait_serving(self, count: int, seconds: float) -> None:
        """Waits until so many nodes serve and nothing is under way."""
        def reached() -> bool:
            nodes = self.nodes()
            return len(nodes) == count and all(node["state"] == "serving" for node in nodes)

        wait_for(f"{count} nodes serve", reached, seconds)
        wait_for("they are one cluster", lambda: all(json.loads(self.ask(node, "/api/v1/status"))["members"] == count for node in self.nodes()), 10)

    def processes(self) -> list[int]:
        """Processes of the site that run: those whose command line names its folder."""
        found = []
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit() and int(entry.name) != os.getpid():
                try:
                    line = (entry / "cmdline").read_bytes()
                except OSError:
                    continue
                if str(self.folder / "state").encode() in line:
                    found.append(int(entry.name))
        return found

    def close(self) -> None:
        """Leaves nothing."""
        self.end_controller()
        self.call("scale", "delete", str(self.file))


class Idlers:
    """Clients that only hold connections, and come back when they lose one."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.sockets: dict[str, socket.socket] = {}
        self.returned = 0

    def open(self, count: int, prefix: str = "idle") -> None:
        """Connects so many more."""
        for number in range(count):
            name = f"{prefix}-{number}"
            self.sockets[name] = self.connect(name)

    def connect(self, name: str) -> socket.socket:
        """One connection with CONNACK."""
        deadline = time.monotonic() + 10
        while True:
            try:
                sock = socket.create_connection((HOST, self.port), timeout=5)
                sock.sendall(w.connect(V311, name, clean=True, keepalive=0))
                if sock.recv(4) == b"\x20\x02\x00\x00":
                    return sock
            except OSError:
                pass
            assert time.monotonic() < deadline, f"{name} cannot connect"
            time.sleep(0.05)

    def turn(self) -> None:
        """Those whose connection has ended come back."""
        for name, sock in self.sockets.items():
            sock.setblocking(False)
            try:
                ended = sock.recv(100) == b"" if sock.fileno() >= 0 else True
            except BlockingIOError:
                continue
            except OSError:
                ended = True
            if ended:
                sock.close()
                self.sockets[name] = self.connect(name)
                self.returned += 1

    def answer(self) -> int:
        """How many answer a PINGREQ."""
        for sock in self.sockets.values():
            sock.settimeout(10)
            sock.sendall(w.PINGREQ)
        return sum(sock.recv(2) == b"\xd0\x00" for sock in self.sockets.values())

    def close(self) -> None:
        """Ends all connections."""
        for sock in self.sockets.values():
            sock.close()
        self.sockets.clear()


def cycles(site: Site, swarm: Swarm, idlers: Idlers, times: int, sizes: Callable[[int], None] = lambda _: None) -> None:
    """Has a site grow to two nodes and shrink to one, so many times, while a swarm publishes; `sizes` is called with each size."""
    try:
        swarm.until("all subscribe", lambda: all(one.subscribed for one in swarm.subscribers), 20)
        swarm.until("all publishers are there", lambda: all(one.here for one in swarm.publishers), 20)
        swarm.loaded = True
        for _ in range(times):
            idlers.open(30)

            def grown() -> bool:
                idlers.turn()
                return site.serving() == 2 and not site.status()["pending"] and min(spread(site).values()) > 5

            swarm.until("it has grown", grown, 60)
            sizes(2)
            swarm.run(1.0)
            idlers.close()
            swarm.until("it has shrunk", lambda: len(site.nodes()) == 1 and site.serving() == 1, 60)
            sizes(1)
        swarm.settle(10)
    finally:
        swarm.close()
        idlers.close()
    verdict = judge(swarm)
    assert verdict.is_clean(), f"{verdict}\n{swarm.story()}"
    assert verdict.acknowledged > 100


def spread(site: Site) -> Counter[str]:
    """Clients of each node, as the nodes themselves count them."""
    return Counter({node["name"]: int(node["samples"].get("connections", -1)) for node in site.nodes()})
