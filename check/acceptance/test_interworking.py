"""The interworking layer seen from its two sides: what the broker behind a node gets, and what neighbours are to each other."""

from __future__ import annotations

import resource
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from apart import can_make_namespaces
from broker import Sidecar, running
from client import Client, ClientError
from cluster import HOST, free_base, get, metric, resident_kib, wait_for
from durable import DAY, Node
from mqttwire import V5, V311, T, connect, subscribe, unsubscribe
from netns import Islands
from outages import Proxy
from recorder import Noted, Recorder

IDLE = 2_000
KEY = 'key = "a secret that both of the nodes know"\n'


@pytest.fixture
def wired(binary: Path, tmp_path: Path) -> Iterator[tuple[Sidecar, Recorder]]:
    """A node and its Mosquitto, with a recorder between them."""
    node = Sidecar(binary, tmp_path / "node")
    recorder = Recorder(node.broker.port)
    node.extra = node.extra.replace(f"{HOST}:{node.broker.port}", f"{HOST}:{recorder.port}")
    try:
        node.broker.start()
        node.start()
        yield node, recorder
    finally:
        recorder.release()
        node.stop()
        node.broker.stop()
        recorder.close()


@pytest.fixture
def row(binary: Path, tmp_path: Path) -> Iterator[list[Sidecar]]:
    """Three nodes before Mosquittos, linked by hand in a row. The overlay `tree` tells neighbours only filters that no other one covers."""
    made = [Sidecar(binary, tmp_path / f"node{number}") for number in range(3)]
    for node, following in zip(made, [*made[1:], None], strict=True):
        chosen = f'neighbours = ["{HOST}:{following.cluster}"]\n' if following else ""
        node.extra = f'links = "manual"\noverlay = "tree"\n{KEY}{chosen}{node.extra}'
    with running(made):
        yield made


def at(node: Node, name: str, version: int = V5, **options: object) -> Client:
    """A connected client."""
    client = Client(HOST, node.port, version, timeout=20)
    client.connect(name, **options)
    return client


def ask(node: Node, path: str) -> Any:
    """An answer of a node's API."""
    return get(f"http://{HOST}:{node.http}/api/v1/{path}")


def routes(node: Node) -> list[str]:
    """The filters that this node lists."""
    return [route["filter"] for route in ask(node, "routes")["routes"]]


def of(name: str, kind: T, recorder: Recorder) -> list[Noted]:
    """The packets of a kind that the broker sent in a client's conversation."""
    return [noted for noted, _ in recorder.conversations().get(name, []) if noted.type == kind and not noted.from_node]


@pytest.mark.parametrize("version", [V311, V5])
def test_every_packet_is_in_the_conversation_of_its_client(wired: tuple[Sidecar, Recorder], version: int) -> None:
    """IL-03, IL-04, IL-06, IL-07: another parser reads all that the node sends; a conversation begins with CONNECT and CONNACK, has what its
    client does and nothing of any other client, and ends as its client's session ends."""
    node, recorder = wired
    one, two = at(node, "one", version), at(node, "two", version)
    one.subscribe("t/#", qos=2)
    for qos in range(3):
        two.publish("t/x", str(qos).encode(), qos=qos)
        one.finish(one.message(str(qos)))
    one.publish("elsewhere", b"x", qos=1)
    one.ping()
    one.unsubscribe("t/#")
    one.disconnect()
    two.disconnect()

    def ended() -> bool:
        return all(name in conversations and conversations[name][0][0].connection in recorder.ended for name in ("one", "two"))

    conversations = recorder.conversations()
    wait_for("the conversations end", lambda: conversations.update(recorder.conversations()) or ended())
    for name, sent, got in (
        ("one", "CONNECT SUBSCRIBE PUBLISH PUBACK PUBREC PUBCOMP PINGREQ UNSUBSCRIBE DISCONNECT", "CONNACK SUBACK PUBLISH PUBACK PUBREL PINGRESP UNSUBACK"),
        ("two", "CONNECT PUBLISH PUBREL DISCONNECT", "CONNACK PUBACK PUBREC PUBCOMP"),
    ):
        noted = conversations[name]
        order = [packet.type.name for packet, _ in noted]
        assert order[:2] == ["CONNECT", "CONNACK"] and order[-1] == "DISCONNECT", order
        assert {packet.type.name for packet, _ in noted if packet.from_node} == set(sent.split()), order
        assert {packet.type.name for packet, _ in noted if not packet.from_node} == set(got.split()), order
        assert len({packet.connection for packet, _ in noted}) == 1
    published = {name: [bytes.fromhex(fields["payload"]) for packet, fields in noted if packet.from_node and packet.type == T.PUBLISH]
                 for name, noted in conversations.items()}
    assert {name: found for name, found in published.items() if found} == {"one": [b"x"], "two": [b"0", b"1", b"2"]}


@pytest.mark.parametrize("version", [V311, V5])
def test_answers_follow_the_brokers_and_one_client_does_not_wait_for_another(wired: tuple[Sidecar, Recorder], version: int) -> None:
    """IL-06, IL-20, IL-21, IL-22: while the broker's answer to one client is on its way, this client has none, and its requests reach the broker in
    their order; other clients go on."""
    node, recorder = wired
    slow, quick = at(node, "slow", version), at(node, "quick", version)
    connection = recorder.conversations()["slow"][0][0].connection
    recorder.holds = lambda noted: noted.connection == connection and not noted.from_node and noted.type in (T.SUBACK, T.UNSUBACK)
    slow.send(subscribe(version, 101, [("a", 1)]))
    slow.send(unsubscribe(version, 102, ["a"]))
    slow.send(subscribe(version, 103, [("b", 1)]))
    wait_for("the broker has answered", lambda: bool(of("slow", T.SUBACK, recorder)))
    quick.subscribe("q", qos=1)
    for number in range(100):
        quick.publish("q", str(number).encode(), qos=1)
        quick.message(str(number))
    quick.unsubscribe("q")
    with pytest.raises(ClientError, match="deadline passed"):
        slow.expect(T.SUBACK, timeout=0.1)
    assert routes(node) == [], "nobody routes what the broker has not granted"
    recorder.release()
    assert [slow.expect(kind).pid for kind in (T.SUBACK, T.UNSUBACK, T.SUBACK)] == [101, 102, 103]
    assert routes(node) == ["b"]
    quick.publish("a", b"not wanted", qos=1)
    quick.publish("b", b"wanted", qos=1)
    assert slow.message().payload == b"wanted"
    requests = [fields["cmd"] for noted, fields in recorder.conversations()["slow"] if noted.from_node and "subscribe" in fields["cmd"]]
    assert requests == ["subscribe", "unsubscribe", "subscribe"]


def told(node: Node, topic: str) -> list[str]:
    """The filters below a topic that this node has heard that others want."""
    return sorted(line["filter"] for line in ask(node, "topology")["interest"] if line["filter"].startswith(topic))


def test_neighbours_hear_of_a_filter_only_where_no_other_one_covers_it(row: list[Sidecar]) -> None:
    """IL-10: while `a/#` is known, `a/b` is told to nobody; when `a/#` goes, `a/b` is told; nothing that is wanted is missed meanwhile."""
    reader, writer = at(row[0], "reader"), at(row[2], "writer")
    writer.publish("a/b", b"advertised", qos=1)
    reader.subscribe("a/#", qos=1)
    assert told(row[2], "a") == ["a/#"]
    reader.subscribe("a/b", qos=1)
    writer.publish("a/b", b"covered", qos=1)
    assert told(row[2], "a") == ["a/#"]
    reader.unsubscribe("a/#")
    assert told(row[2], "a") == ["a/b"]
    writer.publish("a/b", b"alone", qos=1)
    writer.publish("a/c", b"not wanted", qos=1)
    reader.unsubscribe("a/b")
    wait_for("nothing is wanted any more", lambda: told(row[2], "a") == [])
    got = []
    while not got or got[-1] != b"alone":
        got.append(reader.message().payload)
    # The broker gives a message for each of two overlapping subscriptions, or one for both.
    assert sorted(set(got)) == [b"alone", b"covered"], got


def test_a_session_that_stays_is_wanted_while_its_client_is_away(row: list[Sidecar]) -> None:
    """IL-16: the filter of an absent client keeps its route; what is published meanwhile waits for the client, and ends with its session."""
    at(row[0], "away", props=DAY).subscribe("kept", qos=1)
    writer = at(row[2], "writer")
    writer.publish("kept", b"before", qos=1)
    gone = at(row[0], "away", clean=False, props=DAY)
    gone.message("before")
    gone.disconnect()
    wait_for("it is away", lambda: [one["connected"] for one in ask(row[0], "sessions")["sessions"] if one["client"] == "away"] == [False])
    for number in range(20):
        writer.publish("kept", str(number).encode(), qos=1, allowed=(0,))
    assert told(row[2], "kept") == ["kept"]
    back = at(row[0], "away", clean=False, props=DAY)
    assert [back.message().payload for _ in range(20)] == [str(number).encode() for number in range(20)]
    back.disconnect(props={"session_expiry_interval": 0})
    wait_for("nobody wants it", lambda: told(row[2], "kept") == [])


def test_a_client_cannot_pose_as_a_neighbour(row: list[Sidecar]) -> None:
    """IL-18: a client with the id of a node is a client; at the port for nodes its CONNECT is refused, and no link or member comes or goes."""
    first, second = row[0].status()["node"], row[1]
    before = [(line["node"], line["address"]) for line in ask(second, "neighbours")["neighbours"]]
    impostor = at(second, str(first))
    impostor.subscribe("#", qos=0)
    assert [one["client"] for one in ask(second, "sessions")["sessions"]] == [str(first)]
    for version in (V311, V5):
        stranger = Client(HOST, second.cluster, version, timeout=20)
        stranger.send(connect(version, str(first)))
        stranger.read_raw_until_closed()
    at(row[2], "writer").publish("x", b"for all", qos=1)
    assert impostor.message().payload == b"for all"
    assert [(line["node"], line["address"]) for line in ask(second, "neighbours")["neighbours"]] == before
    assert all(node.is_linked(2) for node in row)


@pytest.mark.skipif(not can_make_namespaces(), reason="needs root and the right to make network namespaces")
@pytest.mark.parametrize("ping", ["2s", "8s"])
def test_a_dead_link_is_noticed_within_one_and_a_half_periods(binary: Path, tmp_path: Path, ping: str) -> None:
    """IL-19: datagrams pass between two nodes, TCP does not; with a longer period the link is given up later."""
    two = Islands(binary, tmp_path, 2, cluster__link_ping=ping)
    try:
        wait_for("they are linked", lambda: two.up(0) == two.up(1) == 1)
        period = float(ping.removesuffix("s"))
        cut = time.monotonic()
        two.cut_streams(0, 1)
        wait_for("both have noticed", lambda: two.up(0) == two.up(1) == 0, 30)
        # A busy machine may look late.
        assert 0.9 * period < time.monotonic() - cut < 1.5 * period + 2
    finally:
        two.stop()


def relay(port: int, node: Node, other: Node) -> socket.socket:
    """Carries the datagrams of membership that come to the port which a node advertises; answers come back to it, too."""
    relayed = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    relayed.bind((HOST, port))

    def carry() -> None:
        while True:
            try:
                data, source = relayed.recvfrom(65536)
                relayed.sendto(data, (HOST, other.cluster if source[1] == node.cluster else node.cluster))
            except OSError:
                return

    threading.Thread(target=carry, daemon=True).start()
    return relayed


def over_narrow_paths(binary: Path, folder: Path, count: int, publish: Callable[[list[Node]], Any]) -> Any:
    """What `publish` finds at two nodes whose path carries 400 KB a second for each of so many connections."""
    folder.mkdir()
    two = [Node(binary, folder / f"node{number}", "memory") for number in range(2)]
    paths = [Proxy(free_base(1)[0], node.cluster) for node in two]
    for node, path in zip(two, paths, strict=True):
        path.rate = 400_000
        node.extra = f'advertise = "{HOST}:{path.port}"\nlink_connections = {count}\n'
    two[1].seeds = [f"{HOST}:{paths[0].port}"]
    relays = [relay(path.port, node, other) for path, node, other in zip(paths, two, reversed(two), strict=True)]
    try:
        for node in two:
            node.start()
        wait_for("they are linked", lambda: all(node.is_linked(1) for node in two), 30)
        wait_for("by so many connections", lambda: ask(two[0], "neighbours")["neighbours"][0]["link"]["connections"] == count, 30)
        for path in paths:
            path.mode = "narrow"
        found = publish(two)
        assert [metric(node.http, "sedge_links_silences_total") for node in two] == [0, 0], "a full connection was taken for a dead one"
        return found
    finally:
        for node in two:
            node.stop()
        for end in (*paths, *relays):
            end.close()


def seconds(two: list[Node]) -> float:
    """How long 4 MB of 16 publishers take."""
    reader = at(two[1], "reader")
    reader.subscribe("wide/#", qos=1)
    writers = [at(two[0], f"writer-{number}") for number in range(16)]
    begun = time.monotonic()
    for turn in range(5):
        for number, writer in enumerate(writers):
            writer.start_publish(f"wide/{number}", b"%d " % turn + bytes(50_000), qos=1)
    heard: dict[str, list[bytes]] = {}
    for _ in range(5 * len(writers)):
        message = reader.message(timeout=60)
        heard.setdefault(message.topic, []).append(message.payload[:1])
    assert all(turns == [b"0", b"1", b"2", b"3", b"4"] for turns in heard.values()), heard
    return time.monotonic() - begun


def test_four_connections_carry_more_than_one_where_the_path_limits_each(binary: Path, tmp_path: Path) -> None:
    """IL-17, IL-18: four connections are one neighbour, keep the order of each publisher, and carry at least twice as much."""
    one, four = (over_narrow_paths(binary, tmp_path / str(count), count, seconds) for count in (1, 4))
    assert four < one / 2, f"one connection took {one:.1f} s, four took {four:.1f} s"


def test_a_message_that_takes_longer_than_a_link_may_be_silent_arrives(binary: Path, tmp_path: Path) -> None:
    """IL-19, FT-20: messages of 1 MB take 2.5 s each, first to one of two nodes and then to the other one; 1.5 s of silence would end their link."""
    def each_way(two: list[Node]) -> None:
        for number, node in enumerate(two):
            reader, writer = at(node, f"reader-{number}"), at(two[1 - number], f"writer-{number}")
            reader.subscribe("large", qos=1)
            for turn in range(3):
                writer.start_publish("large", b"%d" % turn + bytes(1_000_000), qos=1)
            assert [reader.message(timeout=60).payload[:1] for _ in range(3)] == [b"0", b"1", b"2"]
            reader.nothing()

    over_narrow_paths(binary, tmp_path / "narrow", 1, each_way)


def test_an_idle_client_costs_at_most_two_kib(binary: Path, tmp_path: Path) -> None:
    """IL-27: clients that connect and are silent cost the node before their broker at most 2 KiB each, and less than 1 KiB more than without one."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    sidecar = Sidecar(binary, tmp_path / "before", "max_connections -1", local=True)
    alone = Node(binary, tmp_path / "alone", "memory", shards=1)
    cost = {}
    try:
        sidecar.broker.start()
        for node in (sidecar, alone):
            node.start()
            idle = [at(node, f"first-{number}", V311) for number in range(100)]
            assert node.process
            empty = resident_kib(node.process.pid)
            idle += [at(node, f"idle-{number}", V311) for number in range(IDLE)]
            cost[node] = (resident_kib(node.process.pid) - empty) * 1024 / IDLE
            for client in idle:
                client.drop()
            node.stop()
    finally:
        sidecar.stop()
        sidecar.broker.stop()
        alone.stop()
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    print(f"\nbytes for an idle client: {cost[sidecar]:.0f} before a broker, {cost[alone]:.0f} without", file=sys.stderr)
    assert cost[sidecar] <= 2048
    assert cost[sidecar] - cost[alone] <= 1024
