"""Duties of the other nodes for a node that is gone: its clients' wills, the shares of its members, the values that it has not heard of."""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from apart import HTTP, MQTT, can_make_namespaces
from client import Client
from cluster import HOST, get, metric, wait_for
from durable import DAY, Node, knows_all
from mqttwire import V5, T, Will
from netns import Islands


def is_whole(node: Node) -> bool:
    """Whether a node has all the copies it is to have, and nothing is on the move."""
    status = node.status()
    return status["copies"] == status["copies_wanted"] == 2 and status["moving"] == status["orphaned"] == 0


def copied(nodes: list[Node]) -> None:
    """Waits until a crash may come."""
    wait_for("everything is copied", lambda: all(is_whole(node) for node in nodes), 30)


def came(client: Client) -> list[bytes]:
    """The messages that have come so far, acknowledged."""
    client.ping()
    found = [got for got in client.inbox if got.type == T.PUBLISH]
    for got in found:
        client.inbox.remove(got)
        client.finish(got)
    return [got.payload for got in found]


def dying(node: Node, name: str, *, delay: int = 0, kept: bool = True) -> Client:
    """A client with a will, in a session that stays or ends with its connection."""
    client = Client(HOST, node.port, V5, timeout=10)
    will = Will(f"will/{name}", name.encode(), qos=1, props={"will_delay_interval": delay})
    client.connect(name, clean=not kept, will=will, props=DAY if kept else None)
    return client


@pytest.mark.parametrize("nodes", ["memory"], indirect=True)
def test_wills_fire_once_when_their_node_is_killed(nodes: list[Node]) -> None:
    """MQ-08, IL-15: of clients that do not come back, at once or after their delay; and not again when the node is back."""
    watching = nodes[0].client("watching")
    watching.subscribe("will/#", qos=2)
    names = [f"w{number}" for number in range(5)]
    doomed = [dying(nodes[2], name, kept=name != "w0") for name in names] + [dying(nodes[2], "late", delay=3)]
    copied(nodes)
    assert came(watching) == []
    killed = time.monotonic()
    nodes[2].kill()
    found: list[bytes] = []
    wait_for("all wills", lambda: (found.extend(came(watching)), len(found) >= 5)[1], 15)
    assert sorted(found) == [name.encode() for name in names]
    wait_for("the delayed will", lambda: (found.extend(came(watching)), len(found) >= 6)[1], 15)
    assert found[5:] == [b"late"] and time.monotonic() - killed >= 3
    for client in doomed:
        client.close()
    nodes[2].start()
    wait_for("it is linked again", lambda: all(knows_all(node) for node in nodes), 30)
    copied(nodes)
    assert came(watching) == []


@pytest.mark.parametrize("nodes", ["memory"], indirect=True)
def test_a_client_that_comes_back_within_its_delay_leaves_no_will(nodes: list[Node]) -> None:
    """MQ-08, MQ-11: also at another node than the one that was killed."""
    watching = nodes[0].client("watching")
    watching.subscribe("will/#", qos=2)
    doomed = [dying(nodes[2], name, delay=4) for name in ("back", "away")]
    copied(nodes)
    nodes[2].kill()
    again = nodes[1].client("back")
    assert again.connack is not None and again.connack.session_present
    found: list[bytes] = []
    wait_for("the other one's will", lambda: (found.extend(came(watching)), found)[1], 20)
    again.ping()
    until = time.monotonic() + 1.5
    while time.monotonic() < until:  # the statement is about a time in which nothing comes
        found += came(watching)
        time.sleep(0.05)
    assert found == [b"away"]
    for client in doomed:
        client.close()


@pytest.mark.parametrize("nodes", ["memory"], indirect=True)
def test_what_is_not_copied_yet_is_counted_and_not_acknowledged(nodes: list[Node]) -> None:
    """FT-20, OP-07: while the nodes with copies stand still, a QoS 2 publication waits; the metrics of the shards say so, and that nothing else does."""
    subscriber, publisher = nodes[0].client("subscriber"), nodes[0].client("publisher")
    subscriber.subscribe("kept", qos=1)
    copied(nodes)

    def waiting(of: str) -> float:
        return metric(nodes[0].http, f"sedge_shard_{of}")

    others = [node.process for node in nodes[1:] if node.process]
    for process in others:
        process.send_signal(signal.SIGSTOP)
    try:
        publisher.start_publish("kept", "x", qos=2, pid=7)
        wait_for("the publication waits", lambda: waiting("publications_not_copied") > 0, 5)
        # Once both are given up, there is nobody to wait for.
        publisher.expect(T.PUBREC, timeout=20)
        wait_for("none waits", lambda: waiting("publications_not_copied") == 0)
    finally:
        for process in others:
            process.send_signal(signal.SIGCONT)
    assert subscriber.message().payload == b"x"
    for of in ("sessions_held_up", "handover_messages_dropped_total", "group_messages_dropped_total"):
        assert waiting(of) == 0, of


@pytest.mark.parametrize("nodes", ["memory"], indirect=True)
def test_shares_of_a_dead_node_are_not_lost(nodes: list[Node]) -> None:
    """MQ-14: messages that a member at the killed node had not acknowledged come to it when it is back elsewhere; nothing is done twice."""
    members = [nodes[number].client(f"member-{number}") for number in (0, 1)]
    lazy = nodes[2].client("lazy")
    for member in (*members, lazy):
        member.subscribe("$share/group/job", qos=1)
    copied(nodes)
    speaking = nodes[0].client("speaking")
    for number in range(30):
        speaking.publish("job", str(number), qos=1)
    wait_for("the lazy one has its share", lambda: (lazy.ping(), [one for one in lazy.inbox if one.type == T.PUBLISH])[1], 10)
    nodes[2].kill()
    for number in range(30, 60):
        speaking.publish("job", str(number), qos=1)
    readers = [*members, nodes[1].client("lazy")]
    found: list[int] = []

    def all_came() -> bool:
        for member in readers:
            found.extend(int(payload) for payload in came(member))
        return set(found) == set(range(60))

    wait_for("every job is done", all_came, 20)
    assert len(found) == len(set(found)), sorted(found)


@pytest.mark.parametrize("nodes", ["journal"], indirect=True)
def test_a_value_that_was_cleared_while_a_node_was_down_stays_cleared(nodes: list[Node]) -> None:
    """MQ-07: the node's journal has the old value, the others know that it was cleared."""
    speaking = nodes[0].client("speaking")
    for topic in ("keep/cleared", "keep/changed", "keep/same"):
        speaking.publish(topic, "old", qos=1, retain=True)
    wait_for("all have them", lambda: all(len(values(HOST, node.port)) == 3 for node in nodes), 20)
    nodes[2].kill()
    speaking.publish("keep/cleared", "", qos=1, retain=True)
    speaking.publish("keep/changed", "new", qos=1, retain=True)
    nodes[2].start()
    wanted = {"keep/changed": b"new", "keep/same": b"old"}
    wait_for("all agree", lambda: all(values(HOST, node.port) == wanted for node in nodes), 20)


def values(host: str, port: int) -> dict[str, bytes]:
    """Retained values below `keep/`, as a new subscriber gets them."""
    client = Client(host, port, V5, timeout=10)
    client.connect("")
    client.subscribe("keep/#")
    client.ping()
    found = {got.topic: got.payload for got in client.inbox if got.type == T.PUBLISH}
    client.disconnect()
    return found


@pytest.fixture
def islands(binary: Path, tmp_path: Path) -> Iterator[Callable[..., Islands]]:
    """Nodes in namespaces."""
    made: list[Islands] = []

    def make(count: int, **settings: object) -> Islands:
        made.append(Islands(binary, tmp_path, count, **settings))
        return made[-1]

    yield make
    for one in made:
        one.stop()


@pytest.mark.skipif(not can_make_namespaces(), reason="needs root and the right to make network namespaces")
def test_retained_messages_agree_after_a_partition(islands: Callable[..., Islands]) -> None:
    """MQ-07, FT-31: values and clearings of both sides hold, the later one where both have written; so does a node that joins."""
    net = islands(3, node__durability="memory")
    wait_for("three members", lambda: all(net.members(node) == 3 and net.up(node) == 2 for node in range(3)), 20)

    def publish(node: int, topic: str, payload: str) -> None:
        client = Client(net.address(node), MQTT, V5, timeout=10)
        client.connect("")
        client.publish(topic, payload, qos=1, retain=True)
        client.disconnect()

    def kept(node: int) -> dict[str, bytes]:
        return values(net.address(node), MQTT)

    for topic in ("left-clears", "right-clears", "both", "same"):
        publish(0, f"keep/{topic}", "before")
    wait_for("all have them", lambda: all(len(kept(node)) == 4 for node in range(3)), 20)
    for other in (0, 1):
        net.cut(2, other)
    wait_for("both sides see the other dead", lambda: net.members(2) == 1 and net.members(0) == net.members(1) == 2, 20)
    publish(0, "keep/left-clears", "")
    publish(2, "keep/right-clears", "")
    publish(0, "keep/both", "earlier")
    # The two sides tell earlier from later by the milliseconds of their clocks.
    at = time.time_ns() // 1_000_000
    wait_for("the clocks have gone on", lambda: time.time_ns() // 1_000_000 > at + 1)
    publish(2, "keep/both", "later")
    publish(1, "keep/left", "left")
    publish(2, "keep/right", "right")
    for other in (0, 1):
        net.join(2, other)
    wanted = {"keep/same": b"before", "keep/both": b"later", "keep/left": b"left", "keep/right": b"right"}
    wait_for("all agree", lambda: all(kept(node) == wanted for node in range(3)), 40)
    net.kill(1)
    net.start(1)
    wait_for("the node is back", lambda: net.ready(1) and net.members(1) == 3, 20)
    assert kept(1) == wanted


@pytest.mark.skipif(not can_make_namespaces(), reason="needs root and the right to make network namespaces")
def test_a_broken_path_stops_nobody(islands: Callable[..., Islands], binary: Path) -> None:
    """FT-20, FT-21, FT-29, MQ-11: two nodes that live and do not reach each other: the third carries their link, clients of both go on,
    sessions move between them, a crash loses nothing; and when the path is mended they are linked directly again."""
    net = islands(3, node__durability="memory")
    wait_for("links and copies", lambda: all(net.members(node) == 3 and net.up(node) == 2 for node in range(3))
             and all(net.api(node, "status")["copies"] == 2 for node in range(3)), 20)
    clients = [Client(net.address(node), MQTT, V5, timeout=20) for node in (0, 1)]
    for client, name in zip(clients, ("zero", "one"), strict=True):
        client.connect(name, clean=True, props=DAY)
        client.subscribe("all/#", qos=2)
    net.cut(0, 1)
    for client, payload in zip(clients, ("from zero", "from one"), strict=True):
        client.publish("all/a", payload, qos=2)
    for client in clients:
        got: list[bytes] = []
        wait_for("messages of both sides", lambda client=client, got=got: (got.extend(came(client)), len(got) >= 2)[1], 10)
        assert sorted(got) == [b"from one", b"from zero"]
    third = net.api(2, "status")["node"]
    assert net.carriers(0) == net.carriers(1) == [third]
    assert "is not reached directly" in (net.folder / "node-0.log").read_text()
    assert f'sedge_link_carried{{peer="{net.api(1, "status")["node"]}"}} 1\n' in get(f"http://{net.address(0)}:{HTTP}/metrics")
    status = subprocess.run([str(binary), "status", "--ids", "--api", f"http://{net.address(0)}:{HTTP}"], capture_output=True, text=True, check=True)
    assert f"up via {net.api(2, 'status')['name']} ({third})" in status.stdout
    clients[0].disconnect()
    moved = Client(net.address(1), MQTT, V5, timeout=20)
    moved.connect("zero", clean=False, props=DAY)
    assert moved.connack and moved.connack.session_present
    moved.disconnect()
    clients[1].publish("all/a", "last", qos=1)
    net.join(0, 1)
    wait_for("a link of their own", lambda: net.up(0) == 2 and not net.carriers(0) + net.carriers(1), 20)
    net.kill(1)
    wait_for("the dead node is noticed", lambda: net.members(0) == 2, 20)
    back = Client(net.address(0), MQTT, V5, timeout=20)
    back.connect("zero", clean=False, props=DAY)
    assert back.connack and back.connack.session_present
    found: list[bytes] = []
    wait_for("what came meanwhile", lambda: (found.extend(came(back)), b"last" in found)[1], 10)
