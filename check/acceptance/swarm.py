"""Many clients in one thread that keep their sessions, come back at any node, and know which messages they are owed."""

from __future__ import annotations

import errno
import random
import selectors
import socket
import time
from collections.abc import Callable
from typing import TypeVar

import mqttwire as w
from mqttwire import V5, V311, T

Found = TypeVar("Found")
DAY = {"session_expiry_interval": 86_400}
# A client that gets no answer for so long goes to another node.
PATIENCE = 3.0
PING_EVERY = 0.5
RETRY_AFTER = 0.02


class Guest:
    """One client: connects to any node, and to another one whenever its connection ends or is silent."""

    def __init__(self, swarm: Swarm, name: str, version: int) -> None:
        self.swarm, self.name, self.version = swarm, name, version
        self.sock: socket.socket | None = None
        self.node = -1
        self.here = False  # CONNACK has come
        self.known = False  # the cluster has acknowledged the session once
        self.again_at = 0.0
        self.heard = self.asked = 0.0
        self.inbound, self.outbound = bytearray(), bytearray()
        self.nodes: list[int] = []  # where it may connect; none: anywhere
        self.stays: list[tuple[float, int]] = []  # since when at which node
        self.lost_sessions: list[float] = []

    # --- the connection ---

    def connect(self, now: float) -> None:
        """Begins to connect to some node."""
        self.node = self.swarm.rng.choice(self.nodes or range(len(self.swarm.addresses)))
        self.sock = socket.socket()
        self.sock.setblocking(False)
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.heard = self.asked = now
        self.inbound.clear()
        self.outbound.clear()
        self.swarm.selector.register(self.sock, selectors.EVENT_READ | selectors.EVENT_WRITE, self)
        if self.sock.connect_ex(self.swarm.addresses[self.node]) not in (0, errno.EINPROGRESS):
            return self.leave(now)
        props = DAY if self.version == V5 else None
        self.outbound += w.connect(self.version, self.name, clean=False, keepalive=60, props=props)
        return None

    def leave(self, now: float) -> None:
        """The connection is over, from whichever side."""
        if self.sock is not None:
            self.swarm.selector.unregister(self.sock)
            self.sock.close()
        self.sock, self.here = None, False
        self.again_at = now + RETRY_AFTER

    def ready(self, mask: int, now: float) -> None:
        """The socket can be read or written."""
        assert self.sock is not None
        try:
            if mask & selectors.EVENT_READ:
                data = self.sock.recv(65536)
                if not data:
                    return self.leave(now)
                self.heard = now
                self.inbound += data
                self.parse(now)
            if self.sock is not None and self.outbound:
                del self.outbound[: self.sock.send(self.outbound)]
        except BlockingIOError:
            pass
        except OSError:
            return self.leave(now)
        self.interest()
        return None

    def interest(self) -> None:
        """Tells the selector whether there is something to write."""
        if self.sock is not None:
            mask = selectors.EVENT_READ | (selectors.EVENT_WRITE if self.outbound else 0)
            if self.swarm.selector.get_key(self.sock).events != mask:
                self.swarm.selector.modify(self.sock, mask, self)

    def parse(self, now: float) -> None:
        """Takes all packets that are complete."""
        while self.sock is not None and (sizes := w.split(self.inbound)):
            raw = bytes(self.inbound[: sizes[1]])
            del self.inbound[: sizes[1]]
            got = w.parse(self.version, raw)
            if got.type == T.CONNACK:
                if got.reason:
                    self.swarm.note(f"{self.name}: CONNECT refused with 0x{got.reason:02x} by node {self.node}")
                    return self.leave(now)
                self.arrive(now, got.session_present)
            elif got.type == T.DISCONNECT:
                return self.leave(now)
            else:
                self.take(got, now)
        return None

    def arrive(self, now: float, present: bool) -> None:
        """The session is here."""
        self.here = True
        self.stays.append((now, self.node))
        if self.known and not present:
            self.lost_sessions.append(now)
            self.swarm.note(f"{self.name}: its session is lost, says node {self.node}")
        self.resume(now, present)
        self.known = True

    def tick(self, now: float) -> None:
        """Does the actions that are due."""
        if self.sock is None:
            if now >= self.again_at:
                self.connect(now)
            return
        if now - self.heard > PATIENCE:
            self.swarm.note(f"{self.name}: node {self.node} is silent")
            return self.leave(now)
        if self.here:
            if now - max(self.heard, self.asked) > PING_EVERY:
                self.asked = now
                self.outbound += w.PINGREQ
            self.work(now)
            self.interest()
        return None

    def resume(self, now: float, present: bool) -> None:
        """After CONNACK."""

    def work(self, now: float) -> None:
        """The actions that a guest takes by itself."""

    def take(self, got: w.Packet, now: float) -> None:
        """A packet."""


class Publisher(Guest):
    """Publishes ascending numbers, and repeats unacknowledged ones."""

    def __init__(self, swarm: Swarm, name: str, version: int, topic: str, qos: int, rate: float) -> None:
        super().__init__(swarm, name, version)
        self.topic, self.qos, self.pause = topic, qos, 1 / rate
        self.next, self.next_at = 0, 0.0
        self.open: dict[int, tuple[int, str]] = {}  # packet id: number, phase
        self.acknowledged: dict[int, tuple[float, int]] = {}  # number: when, by which node
        self.refused: dict[int, int] = {}  # number: reason
        self.window = 10

    def resume(self, now: float, present: bool) -> None:
        """Repeats in the order of sending, as the standard asks."""
        for pid, (number, phase) in sorted(self.open.items(), key=lambda item: item[1][0]):
            if phase == "sent":
                self.outbound += self.packet(pid, number, dup=True)
            else:
                self.outbound += w.ack(self.version, T.PUBREL, pid)

    def packet(self, pid: int, number: int, *, dup: bool = False) -> bytes:
        """A PUBLISH."""
        return w.publish(self.version, self.topic, str(number).encode(), qos=self.qos, dup=dup, pid=pid)

    def work(self, now: float) -> None:
        """Publishes the messages that are due."""
        if self.swarm.loaded and now >= self.next_at and len(self.open) < self.window:
            self.next_at = max(self.next_at + self.pause, now - 1)
            pid = next(pid for pid in range(1, 1000) if pid not in self.open)
            self.open[pid] = (self.next, "sent")
            self.outbound += self.packet(pid, self.next)
            self.next += 1

    def take(self, got: w.Packet, now: float) -> None:
        """An acknowledgement."""
        if got.pid not in self.open:
            return
        number, _ = self.open[got.pid]
        if got.type in (T.PUBACK, T.PUBREC) and got.reason >= 0x80:
            self.refused[number] = got.reason
            del self.open[got.pid]
            return
        if got.type in (T.PUBACK, T.PUBREC):
            self.acknowledged.setdefault(number, (now, self.node))
        if got.type == T.PUBREC:
            self.open[got.pid] = (number, "released")
            self.outbound += w.ack(self.version, T.PUBREL, got.pid)
        elif got.type in (T.PUBACK, T.PUBCOMP):
            del self.open[got.pid]


class Subscriber(Guest):
    """Acknowledges messages, and counts a QoS 2 message once it is its own: before its PUBREC."""

    def __init__(self, swarm: Swarm, name: str, version: int, topic: str) -> None:
        super().__init__(swarm, name, version)
        self.topic = topic
        self.got: dict[str, dict[int, float]] = {}  # topic: number: when first
        self.last: dict[str, int] = {}
        self.held: set[int] = set()
        self.subscribed = False
        self.repeated: list[tuple[str, int, float, bool, int]] = []  # topic, number, when, DUP, QoS
        self.disordered: list[tuple[str, int, int, float]] = []  # topic, number, the one before it, when

    def resume(self, now: float, present: bool) -> None:
        """The session has the subscription after the first time."""
        if not present:
            self.held.clear()
        if not present or not self.subscribed:
            self.outbound += w.subscribe(self.version, 65_000, [(self.topic, 2)])

    def take(self, got: w.Packet, now: float) -> None:
        """A message, a PUBREL or a SUBACK."""
        if got.type == T.SUBACK:
            assert got.reasons == [2], got
            self.subscribed = True
        elif got.type == T.PUBLISH:
            if got.qos != 2 or got.pid not in self.held:
                self.count(got, now)
            if got.qos == 2:
                self.held.add(got.pid)
            self.outbound += w.ack(self.version, T.PUBREC if got.qos == 2 else T.PUBACK, got.pid)
        elif got.type == T.PUBREL:
            self.held.discard(got.pid)
            self.outbound += w.ack(self.version, T.PUBCOMP, got.pid)

    def count(self, got: w.Packet, now: float) -> None:
        """A message that has come."""
        number, of_topic = int(got.payload), self.got.setdefault(got.topic, {})
        if number in of_topic:
            self.repeated.append((got.topic, number, now, got.dup, got.qos))
            return
        if number < (before := self.last.get(got.topic, -1)):
            self.disordered.append((got.topic, number, before, now))
        of_topic[number] = now
        self.last[got.topic] = max(number, before)

    def lacks(self, publisher: Publisher) -> list[int]:
        """Acknowledged messages that have not come."""
        return sorted(publisher.acknowledged.keys() - self.got.get(publisher.topic, {}).keys())

    def wants(self, publisher: Publisher) -> bool:
        """Whether the publisher's messages are for this one."""
        return self.topic in ("load/#", publisher.topic)


class Swarm:
    """Publishers, for each topic a subscriber, and one subscriber of everything; they choose nodes from a seed."""

    def __init__(self, addresses: list[tuple[str, int]], rng: random.Random, *, pairs: int = 3, rate: float = 40,
                 prefix: str = "") -> None:
        self.addresses, self.rng = addresses, rng
        self.selector = selectors.DefaultSelector()
        self.loaded = False
        self.began = time.monotonic()
        self.notes: list[tuple[float, str]] = []
        self.publishers: list[Publisher] = []
        self.subscribers: list[Subscriber] = []
        for qos in (1, 2):
            for number in range(pairs):
                topic, version = f"load/{qos}/{number}", (V5, V311)[number % 2]
                self.publishers.append(Publisher(self, f"{prefix}pub-{qos}-{number}", version, topic, qos, rate))
                self.subscribers.append(Subscriber(self, f"{prefix}sub-{qos}-{number}", version, topic))
        self.subscribers.append(Subscriber(self, f"{prefix}sub-all", V5, "load/#"))
        self.guests: list[Guest] = [*self.publishers, *self.subscribers]

    def note(self, text: str) -> None:
        """Remembers an event and its time."""
        self.notes.append((time.monotonic() - self.began, text))

    def turn(self, seconds: float = 0.005) -> float:
        """One turn of the loop; returns the time."""
        events = self.selector.select(seconds)
        now = time.monotonic()
        for key, mask in events:
            if key.data.sock is key.fileobj:
                key.data.ready(mask, now)
        for guest in self.guests:
            guest.tick(now)
        return now

    def run(self, seconds: float) -> None:
        """Lets the clients do their work."""
        until = time.monotonic() + seconds
        while self.turn() < until:
            pass

    def until(self, what: str, condition: Callable[[], Found], seconds: float) -> Found:
        """Runs until something holds."""
        deadline = time.monotonic() + seconds
        while not (found := condition()):
            assert time.monotonic() < deadline, f"not within {seconds} s: {what}\n{self.story()}"
            self.run(0.1)
        return found

    def settle(self, patience: float) -> None:
        """Without new messages, until all that is owed has come or nothing has come for so long."""
        self.loaded = False
        last, since = -1, time.monotonic()
        while self.owed() and time.monotonic() - since < patience:
            self.run(0.2)
            if (came := self.came()) != last:
                last, since = came, time.monotonic()
        self.run(0.5)

    def came(self) -> int:
        """How much has come to subscribers and publishers."""
        return sum(len(g) for s in self.subscribers for g in s.got.values()) + sum(len(p.acknowledged) for p in self.publishers)

    def owed(self) -> int:
        """Acknowledged messages that have not come, and publications that wait."""
        pairs = ((s, p) for s in self.subscribers for p in self.publishers if s.wants(p))
        return sum(len(s.lacks(p)) for s, p in pairs) + sum(len(p.open) for p in self.publishers)

    def story(self) -> str:
        """The events of the run, oldest first."""
        return "\n".join(f"  {at:8.3f} {text}" for at, text in self.notes[-400:])

    def close(self) -> None:
        """Ends all connections."""
        for guest in self.guests:
            guest.leave(0.0)
        self.selector.close()
