"""Signals of nodes to each other about their overlay, as a capture of the links between them shows them."""

from __future__ import annotations

import struct
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from capture import Capture, Seen
from cluster import HOST, wait_for
from durable import Node
from mqttwire import T

SIGNALS = "$sedge/overlay"


@contextmanager
def seen(binary: Path, folder: Path, overlay: str, capacities: list[int]) -> Iterator[tuple[list[Node], Capture]]:
    """Nodes without a cluster key, so that their links can be read, and all that they say from the first connection on."""
    nodes = [Node(binary, folder / f"node{number}", "memory", shards=1) for number in range(len(capacities))]
    for node, capacity in zip(nodes, capacities, strict=True):
        node.seeds = [f"{HOST}:{other.cluster}" for other in nodes if other is not node]
        node.extra = f'overlay = "{overlay}"\ncapacity = {capacity}\n'
    with Capture([node.cluster for node in nodes]) as capture:
        try:
            for node in nodes:
                node.start()
            wait_for("all are linked", lambda: all(node.is_linked(len(nodes) - 1) for node in nodes), 30)
            yield nodes, capture
        finally:
            for node in nodes:
                node.stop()


def name(node: Node) -> str:
    """The id of a node."""
    return str(node.status()["node"])


def connections(capture: Capture) -> dict[tuple[int, int], list[Seen]]:
    """The packets of each connection."""
    found = defaultdict(list)
    for packet in capture.packets():
        found[packet.dialler, packet.acceptor].append(packet)
    return found


def by_sender(capture: Capture) -> dict[tuple[str, str], list[bytes]]:
    """Signals by sender and receiver: the dialler names itself in CONNECT, the acceptor in a user property of CONNACK."""
    found = defaultdict(list)
    for packets in connections(capture).values():
        greeting = {packet.by_dialler: packet for packet in packets if packet.type in (T.CONNECT, T.CONNACK)}
        if len(greeting) < 2:
            continue
        dialler = user_property(greeting[True].raw, "node")
        acceptor = user_property(greeting[False].raw, "node")
        for packet in packets:
            if packet.type == T.PUBLISH and (signal := packet.publish()).topic == SIGNALS:
                found[(dialler, acceptor) if packet.by_dialler else (acceptor, dialler)].append(signal.payload)
    return found


def user_property(raw: bytes, key: str) -> str:
    """The value of a user property, wherever it stands in a packet."""
    mark = b"\x26" + struct.pack(">H", len(key)) + key.encode()
    at = raw.index(mark) + len(mark)
    (size,) = struct.unpack_from(">H", raw, at)
    return raw[at + 2 : at + 2 + size].decode()


class Claim(NamedTuple):
    """A claim about the tree, as docs/protocol/tree.md draws it."""

    epoch: int
    version: int
    capability: int
    root: str
    cost: int
    parent: str | None


def claim(signal: bytes) -> Claim:
    """The sender's own claim at the start of a signal of part 1."""
    part, version, *fields, has_parent = struct.unpack_from(">BBQIQQIB", signal)
    assert (part, version) == (1, 1)
    parent = f"{struct.unpack_from('>Q', signal, 35)[0]:016x}" if has_parent else None
    epoch, number, capability, root, cost = fields
    return Claim(epoch, number, capability, f"{root:016x}", cost, parent)


def test_what_a_tree_rests_on_is_readable_on_the_links_and_nowhere_else(binary: Path, tmp_path: Path) -> None:
    """TR-04, TR-05, TR-07: on the six links of four nodes a capture shows root, cost, parent and capability as each node believes in
    them, and pings whose answers give the round trip; no client ever sees any of it."""
    with seen(binary, tmp_path, "tree", [10, 10, 1000, 10]) as (nodes, capture):
        names = [name(node) for node in nodes]
        clients = [node.client(f"curious-{at}") for at, node in enumerate(nodes)]
        for client in clients:
            client.try_subscribe("#", "$sedge/#", SIGNALS)
        wait_for("a tree of all", lambda: all(node.has_tree_of(len(nodes)) for node in nodes), 20)

        def last_claims() -> dict[str, Claim]:
            found = {}
            for (sender, _), signals in by_sender(capture).items():
                own = [claim(signal) for signal in signals if signal[0] == 1]
                found[sender] = max([*own, *([found[sender]] if sender in found else [])], key=lambda one: one[:2])
            return found

        def agree() -> bool:
            claims = last_claims()
            return set(claims) == set(names) and all(
                one.root == names[2] and (one.parent is None) == (sender == names[2]) for sender, one in claims.items())

        wait_for("the claims agree", agree, 20)
        for sender, one in last_claims().items():
            assert one.capability == (1000 if sender == names[2] else 10)
            assert (one.cost == 0) == (sender == names[2])
        assert nodes[0].topology()["trees"][0]["root"] == names[2]

        def links() -> list[list[Seen]]:
            return [link for link in connections(capture).values() if any(packet.type == T.CONNACK for packet in link)]

        wait_for("all links, and an answered ping",
                 lambda: len(links()) >= 6 and any(packet.type == T.PINGRESP for link in links() for packet in link), 20)
        for link in links():
            assert (link[0].type, link[0].by_dialler) == (T.CONNECT, True)
            for ping in (packet for packet in link if packet.type in (T.PINGREQ, T.PINGRESP)):
                assert ping.by_dialler == (ping.type == T.PINGREQ) and len(ping.raw) == 2
        for client in clients:
            client.nothing()


def test_only_who_has_to_do_with_a_topic_answers(binary: Path, tmp_path: Path) -> None:
    """TR-17, TR-18: all are asked about a topic, all confirm, and only the node whose client subscribes to it answers."""
    ask, answer, confirm = 4, 5, 6
    with seen(binary, tmp_path, "topic-tree", [10, 10, 10]) as (nodes, capture):
        publisher, interested, stranger = (name(node) for node in nodes)
        subscriber = nodes[1].client("subscriber")
        subscriber.subscribe("site/+/temp", qos=1)
        client = nodes[0].client("publisher")
        client.publish("site/a/temp", "warm", qos=1)
        assert subscriber.expect(T.PUBLISH).payload == b"warm"

        def said(sender: str, receiver: str, kind: int, what: bytes = b"") -> list[int]:
            """The numbers of signals of a kind in which something stands; those of answers mean nothing."""
            signals = by_sender(capture)[sender, receiver]
            return [struct.unpack_from(">Q", signal, 2)[0] for signal in signals if signal[1] == kind and what in signal]

        def has_confirmed(one: str) -> bool:
            asked = said(publisher, one, ask, b"site/a/temp")
            return bool(asked) and max(said(one, publisher, confirm), default=0) >= asked[0]

        wait_for("all were asked and have confirmed", lambda: all(has_confirmed(one) for one in (interested, stranger)), 20)
        wait_for("an answer", lambda: said(interested, publisher, answer, b"site/+/temp"), 20)
        assert not said(stranger, publisher, answer)
