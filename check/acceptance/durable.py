"""Nodes with journals, and clients that keep to the standard over any number of connections."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mqttwire as w
from client import Client, ClientError
from cluster import HOST, free_base, get, wait_for
from mqttwire import V5, T

DAY = {"session_expiry_interval": 86_400}


class Node:
    """One `sedge serve` that keeps its ports and its data directory over all its lives."""

    def __init__(self, binary: Path, data: Path, durability: str, **settings: object) -> None:
        self.binary, self.data = binary, data
        self.port, self.http, self.cluster = free_base(1)
        self.settings: dict[str, object] = {"durability": durability, "shards": 2, **settings}
        self.seeds: list[str] = []
        self.environment: dict[str, str] = {}
        self.extra = ""  # more lines for [cluster], and more sections
        self.log = data.parent / f"{data.name}.log"
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Starts it and waits until it serves."""
        self.spawn()
        wait_for("the node is ready", self._ready, 20)

    def configure(self) -> Path:
        """Writes its configuration."""
        lines = "".join(f"{key} = {json.dumps(value)}\n" for key, value in self.settings.items())
        config = self.data.parent / f"{self.data.name}.toml"
        config.write_text(
            f"[node]\ndata_dir = \"{self.data}\"\n{lines}[mqtt]\nbind = \"{HOST}\"\nport = {self.port}\n"
            f"advertise = \"{HOST}:{self.port}\"\n"
            f"[http]\nport = {self.http}\n[cluster]\nbind = \"{HOST}\"\nport = {self.cluster}\nseeds = {json.dumps(self.seeds)}\n{self.extra}")
        return config

    def reload(self) -> None:
        """Writes its configuration anew, and tells it to read that again."""
        self.configure()
        assert self.process
        self.process.send_signal(signal.SIGHUP)

    def spawn(self) -> None:
        """Starts it."""
        config = self.configure()
        environment = {**os.environ, **self.environment}
        if self.extra.startswith("name ="):
            environment.pop("SEDGE_CLUSTER__NAME", None)  # of conftest.py; it would win over the file
        with open(self.log, "ab") as log:
            command = [str(self.binary), "serve", "-c", str(config)]
            self.process = subprocess.Popen(command, stderr=log, stdout=log, env=environment)

    def _ready(self) -> bool:
        try:
            answered = get(f"http://{HOST}:{self.http}/health/ready", 2) is not None
        except OSError:
            answered = False
        # Asked last: another node may answer, whose ports this one did not get.
        assert self.process and self.process.poll() is None, self.log.read_text()
        return answered

    def kill(self) -> None:
        """kill -9."""
        assert self.process
        self.process.kill()
        self.process.wait(10)

    def stop(self) -> None:
        """Ctrl-C, if it runs."""
        if self.process and self.process.poll() is None:
            self.process.terminate()
            self.process.wait(20)

    def client(self, client_id: str, version: int = V5, **options: object) -> Client:
        """A connected client with a session that stays; a clean one if it is asked for."""
        client = Client(HOST, self.port, version, timeout=10)
        if version == V5:
            options.setdefault("props", DAY)
        client.connect(client_id, **{"clean": False, **options})
        return client

    def status(self) -> dict[str, object]:
        """GET /api/v1/status."""
        found: dict[str, object] = get(f"http://{HOST}:{self.http}/api/v1/status")
        return found

    def topology(self) -> dict[str, Any]:
        """GET /api/v1/topology."""
        found: dict[str, Any] = get(f"http://{HOST}:{self.http}/api/v1/topology")
        return found

    def is_linked(self, others: int) -> bool:
        """Whether it has links to so many."""
        return len(self.topology()["links"]) == others

    def has_tree_of(self, size: int) -> bool:
        """Whether it knows a complete tree of so many nodes: everybody but the root has a parent in it, without circles."""
        trees = self.topology()["trees"]
        if len(trees) != 1 or not trees[0]["complete"] or len(trees[0]["nodes"]) != size:
            return False
        parents = {line["node"]: line["parent"] for line in trees[0]["nodes"]}
        for name in parents:
            steps = 0
            while name is not None and steps <= size:
                name, steps = parents[name], steps + 1
            if name is not None:
                return False
        return sum(parent is None for parent in parents.values()) == 1


class Publisher:
    """Publishes numbers and repeats unacknowledged ones after a reconnection, as the standard asks."""

    def __init__(self, name: str, topic: str, qos: int) -> None:
        self.name, self.topic, self.qos = name, topic, qos
        self.next = 0
        self.open: dict[int, tuple[int, str]] = {}  # packet id: number, phase
        self.acknowledged: list[int] = []

    def connect(self, node: Node) -> None:
        """Connects, and repeats."""
        self.client = node.client(self.name)
        for pid, (number, phase) in sorted(self.open.items(), key=lambda item: item[1][0]):
            if phase == "sent":
                self.client.start_publish(self.topic, str(number), qos=self.qos, dup=True, pid=pid)
            else:
                self.client.ack(T.PUBREL, pid)

    def publish(self) -> None:
        """Sends the next number with a packet id that is free."""
        pid = next(pid for pid in range(1, 1000) if pid not in self.open)
        self.open[pid] = (self.next, "sent")
        self.client.start_publish(self.topic, str(self.next), qos=self.qos, pid=pid)
        self.next += 1

    def take(self, got: w.Packet) -> None:
        """An acknowledgement."""
        number, _ = self.open.get(got.pid, (-1, ""))
        assert got.reason < 0x80 or got.reason == 0x92, f"refused with 0x{got.reason:02x}"
        if got.type == T.PUBREC and number >= 0:
            self.open[got.pid] = (number, "released")
            self.client.ack(T.PUBREL, got.pid)
        elif got.type in (T.PUBACK, T.PUBCOMP) and number >= 0:
            del self.open[got.pid]
            self.acknowledged.append(number)


class Subscriber:
    """Receives, acknowledges, and counts a QoS 2 message when the standard says that it is delivered: with its PUBREC."""

    def __init__(self, name: str, topic: str, qos: int) -> None:
        self.name, self.topic, self.qos = name, topic, qos
        self.got: list[int] = []
        self.held: set[int] = set()

    def connect(self, node: Node) -> None:
        """Connects; the session has the subscription after the first time."""
        self.client = node.client(self.name)
        assert self.client.connack is not None
        if not self.client.connack.session_present:
            assert not self.got, f"the session is lost: {self.name} at {node.data}"
            self.client.subscribe(self.topic, qos=self.qos)

    def take(self, got: w.Packet) -> None:
        """A message or a PUBREL."""
        if got.type == T.PUBLISH and got.qos == 1:
            self.got.append(int(got.payload))
            self.client.ack(T.PUBACK, got.pid)
        elif got.type == T.PUBLISH:
            if got.pid not in self.held:
                self.held.add(got.pid)
                self.got.append(int(got.payload))
            self.client.ack(T.PUBREC, got.pid)
        elif got.type == T.PUBREL:
            self.held.discard(got.pid)
            self.client.ack(T.PUBCOMP, got.pid)


def pump(side: Publisher | Subscriber) -> bool:
    """Takes the packets that have come; says whether the connection stands."""
    client = side.client
    try:
        while True:
            got = client.inbox.popleft() if client.inbox else client._read(time.monotonic() + 0.001)
            if got is None:
                return False
            side.take(got)
    except ClientError:
        return True


def first_times(numbers: list[int]) -> list[int]:
    """Each number where it came first."""
    return list(dict.fromkeys(numbers))


Side = Publisher | Subscriber


def knows_all(node: Node, size: int = 3) -> bool:
    """Whether a node is linked to all others of so many nodes, and in step with them."""
    members = get(f"http://{HOST}:{node.http}/api/v1/cluster")["members"]
    links = [member["link"] for member in members if member["link"]]
    return len(members) == size and len(links) == size - 1 and all(link["synced"] for link in links)


def everybody(nodes: list[Node], rng: random.Random) -> tuple[list[Publisher], list[Subscriber], dict[str, Node]]:
    """Three publishers of each QoS and a subscriber for each, connected anywhere; and the node of each."""
    publishers = [Publisher(f"pub-{qos}-{i}", f"load/{qos}/{i}", qos) for qos in (1, 2) for i in range(3)]
    subscribers = [Subscriber(f"sub-{p.qos}-{p.topic[-1]}", p.topic, p.qos) for p in publishers]
    where = {side.name: rng.choice(nodes) for side in [*subscribers, *publishers]}
    for side in [*subscribers, *publishers]:
        side.connect(where[side.name])
    return publishers, subscribers, where


def move(side: Side, to: Node, where: dict[str, Node]) -> None:
    """Breaks a client's connection, and connects it to a node; its session has to be there."""
    side.client.drop()
    where[side.name] = to
    side.connect(to)


def settle(sides: list[Side], done: Callable[[], bool], what: Callable[[], object]) -> None:
    """Lets everything arrive that is on its way."""
    deadline = time.monotonic() + 60
    while not done():
        assert time.monotonic() < deadline, what()
        for side in sides:
            assert pump(side), f"{side.name}: the connection was ended"
