"""Publishers that are acknowledged when the other end of a bridge has their messages: `ack = "remote"`, with a real Mosquitto."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from client import Client
from cluster import metric, wait_for
from durable import Node
from mqttwire import V5, V311, T
from remote import Collector, Load, Remote
from test_bridging import DEADLINE, all_know, bridge, check, remote, runs, state, the_runner  # noqa: F401 (fixtures)

OUTAGE = 2.0


def waiting(remote: Remote, **settings: object) -> str:  # noqa: F811
    """A section of a bridge for whose other end publishers wait."""
    return bridge(remote, ack="remote", buffer={"full": "refuse"}, reconnect_max="500ms", **settings)


def is_not_answered(client: Client, seconds: float) -> None:
    """For so long the client gets no acknowledgement of its publications, and its pings are answered."""
    client.rest(seconds)
    assert not any(one.type in (T.PUBACK, T.PUBREC) for one in client.inbox), client.inbox


@pytest.mark.parametrize("version", [V311, V5])
def test_no_publisher_is_acknowledged_before_the_other_end_has_the_message(
    make_site: Callable[..., list[Node]], remote: Remote, version: int  # noqa: F811
) -> None:
    """DP-03: while the other end hangs there is no PUBACK and no PUBREC at any node, other topics and pings go on; then all come, in order."""
    nodes = make_site(waiting(remote), 3)
    wait_for("one runs the bridge", lambda: all_know(nodes), DEADLINE)
    far = Collector(remote.port, "up/#")
    publishers = [node.client(f"publisher-{number}", version) for number, node in enumerate(nodes)]
    for number, publisher in enumerate(publishers):
        publisher.publish(f"up/{number}", f"before-{number}", qos=1)
        wait_for("it is there", lambda n=number: f"before-{n}" in far.payloads)
    remote.signal(signal.SIGSTOP)
    pids = [[publisher.start_publish(f"up/{number}", f"{number}-{qos}", qos=qos) for qos in (1, 2)] for number, publisher in enumerate(publishers)]
    bystanders = [node.client(f"bystander-{number}", version) for number, node in enumerate(nodes)]
    for bystander, publisher in zip(bystanders, publishers, strict=True):
        wait_for("the publications wait", lambda: sum(metric(node.http, "sedge_awaited_publications") for node in nodes) == 6, DEADLINE)
        bystander.publish("elsewhere", "goes on", qos=1)
        is_not_answered(publisher, OUTAGE / len(nodes))
    remote.signal(signal.SIGCONT)
    for publisher, (first, second) in zip(publishers, pids, strict=True):
        publisher.expect(T.PUBACK, timeout=DEADLINE, pid=first)
        publisher.expect(T.PUBREC, timeout=DEADLINE, pid=second)
        publisher.ack(T.PUBREL, second)
        publisher.expect(T.PUBCOMP, pid=second)
    wait_for("nobody waits", lambda: sum(metric(node.http, "sedge_awaited_publications") for node in nodes) == 0, DEADLINE)
    wait_for("all are there", lambda: {f"{number}-{qos}" for number in range(3) for qos in (1, 2)} <= set(far.payloads), DEADLINE)
    far.stop()


@pytest.mark.parametrize("qos", [1, 2])
def test_what_is_acknowledged_is_there_when_the_whole_site_is_gone(
    make_site: Callable[..., list[Node]], remote: Remote, qos: int  # noqa: F811
) -> None:
    """DP-03: kill -9 of all nodes under load, for good: whatever a publisher was told is at the other end, with QoS 1 also at its subscribers."""
    nodes = make_site(waiting(remote, qos=1), 3)
    wait_for("one runs the bridge", lambda: all_know(nodes), DEADLINE)
    far = Collector(remote.port, "up/#")
    loads = [Load(node.port, f"up/{number}", qos) for number, node in enumerate(nodes)]
    wait_for("the loads flow", lambda: all(load.has_sent(40) for load in loads), DEADLINE)
    for node in nodes:
        node.kill()
    told = [(f"up/{number}", payload) for number, load in enumerate(loads) for payload in load.abandon()]
    assert len(told) >= 120
    wait_for("it is there", lambda: set(told) <= set(zip(far.topics, far.payloads, strict=False)), DEADLINE)
    far.stop()


@pytest.mark.parametrize("qos", [1, 2])
def test_publishers_get_their_answer_from_the_successor_of_a_killed_bridging_node(
    make_site: Callable[..., list[Node]], remote: Remote, qos: int  # noqa: F811
) -> None:
    """DP-03: kill -9 of the bridging node while publishers of other nodes wait for it: the load goes on, nothing is lost, order holds."""
    nodes = make_site(waiting(remote), 3)
    wait_for("one runs the bridge", lambda: all_know(nodes), DEADLINE)
    first = the_runner(nodes)
    others = [node for node in nodes if node is not first]
    far = Collector(remote.port, "up/#")
    load = Load(others[0].port, "up/load", qos)
    wait_for("the load flows", lambda: load.has_sent(50), DEADLINE)
    first.kill()
    count = len(load.acknowledged)
    wait_for("the load goes on", lambda: load.has_sent(count + 50), DEADLINE)
    sent = load.stop()
    wait_for("everything is there", lambda: set(sent) <= set(far.payloads), DEADLINE)
    far.stop()
    check(sent, far.payloads, exactly=qos == 2)


def test_a_publisher_is_slowed_by_the_receive_maximum_and_not_dropped(
    make_site: Callable[..., list[Node]], remote: Remote  # noqa: F811
) -> None:
    """DP-03: a client with as many open publications as it may have stays connected through an outage, and all of them arrive."""
    (node,) = make_site(waiting(remote) + "[limits]\nreceive_maximum = 16\n")
    wait_for("the bridge runs", lambda: runs(node), DEADLINE)
    far = Collector(remote.port, "up/#")
    publisher = node.client("publisher", V5)
    remote.signal(signal.SIGSTOP)
    pids = [publisher.start_publish("up/a", str(number), qos=1) for number in range(16)]
    wait_for("the outage is noticed", lambda: state(node)["state"] == "down", DEADLINE)
    is_not_answered(publisher, OUTAGE)
    assert metric(node.http, "sedge_awaited_publications") == 16
    remote.signal(signal.SIGCONT)
    for pid in pids:
        publisher.expect(T.PUBACK, timeout=DEADLINE, pid=pid)
    wait_for("everything is there", lambda: set(map(str, range(16))) <= set(far.payloads), DEADLINE)
    far.stop()
    check([str(number) for number in range(16)], far.payloads, exactly=False)


def test_a_killed_node_that_comes_back_answers_who_repeats(make_site: Callable[..., list[Node]], remote: Remote) -> None:  # noqa: F811
    """DP-03: kill -9 of the only node in an outage: the QoS 2 publication that nobody was told of is answered once, and arrives once."""
    (node,) = make_site(waiting(remote))
    wait_for("the bridge runs", lambda: runs(node), DEADLINE)
    far = Collector(remote.port, "up/#")
    publisher = node.client("publisher", V5)
    remote.signal(signal.SIGSTOP)
    pid = publisher.start_publish("up/a", "x", qos=2)
    wait_for("it waits", lambda: metric(node.http, "sedge_awaited_publications") == 1, DEADLINE)
    node.kill()
    node.start()
    publisher = node.client("publisher", V5)
    publisher.start_publish("up/a", "x", qos=2, pid=pid, dup=True)
    is_not_answered(publisher, OUTAGE / 2)
    remote.signal(signal.SIGCONT)
    publisher.expect(T.PUBREC, timeout=DEADLINE, pid=pid)
    wait_for("it is there", lambda: far.payloads == ["x"], DEADLINE)
    publisher.ack(T.PUBREL, pid)
    publisher.expect(T.PUBCOMP, pid=pid)
    publisher.publish("up/a", "last", qos=1)
    wait_for("the last is there", lambda: far.payloads[-1:] == ["last"], DEADLINE)
    far.stop()
    assert far.payloads == ["x", "last"]


def test_nobody_is_acknowledged_before_the_bridge_has_its_session(binary: Path, tmp_path: Path, remote: Remote) -> None:  # noqa: F811
    """DP-03: a message that is published in a new node's first moments, and wanted by others, is not acknowledged before the other end has it."""
    far = Collector(remote.port, "up/#")
    for number in range(4):
        node = Node(binary, tmp_path / f"new{number}", "journal")
        node.extra = f'name = "new{number}"\n' + waiting(remote)
        try:
            node.spawn()
            near = wait_for("the node listens", lambda: connected(node), DEADLINE)  # noqa: B023
            near.subscribe("up/#", qos=1)
            pid = near.start_publish("up/a", f"first-{number}", qos=1)
            near.expect(T.PUBACK, timeout=DEADLINE, pid=pid)
            wait_for("it is there", lambda: f"first-{number}" in far.payloads, 5)  # noqa: B023
            near.message(f"first-{number}", topic="up/a", qos=1, timeout=DEADLINE)
        finally:
            node.stop()
    far.stop()


def connected(node: Node) -> Client | None:
    """A client of the node, if it listens."""
    try:
        return node.client("near", V5)
    except OSError:
        return None
