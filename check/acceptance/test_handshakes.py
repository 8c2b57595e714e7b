"""The handshake of QoS 2 cut at each of its steps, and the order of many messages, at one node and between nodes."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from client import Client
from cluster import HOST, Cluster
from mqttwire import V5, T

DAY = {"session_expiry_interval": 86_400}
COUNT = 10_000
# Within the receive maximum of the broker.
AT_ONCE = 500


def at(cluster: Cluster, node: int, name: str, *, clean: bool = False) -> Client:
    """A client of this node (counted from 0); its session stays unless it is clean."""
    client = Client(HOST, cluster.ports()[node], V5, timeout=20)
    client.connect(name, clean=clean, props=None if clean else DAY)
    return client


@pytest.fixture
def watching(cluster: Cluster, request: pytest.FixtureRequest) -> Iterator[Client]:
    """A subscriber that never goes."""
    client = at(cluster, 2, f"watching {request.node.name}", clean=True)
    yield client
    client.close()


@pytest.mark.parametrize("back", [0, 1], ids=["same-node", "other-node"])
@pytest.mark.parametrize("step", ["PUBLISH", "PUBREC", "PUBREL", "PUBCOMP"])
def test_a_publisher_that_is_cut_off_at_a_step_publishes_once(
    cluster: Cluster, watching: Client, step: str, back: int
) -> None:
    """MQ-06: it has sent PUBLISH, has read PUBREC, has sent PUBREL, has read PUBCOMP; then its connection breaks, and it goes on at the same
    or at another node as its client library would."""
    topic, name = f"cut/{step}/{back}", f"publisher {step} {back}"
    watching.subscribe(topic, qos=2)
    client = at(cluster, 0, name)
    pid = client.start_publish(topic, b"once", qos=2)
    if step != "PUBLISH":
        client.expect(T.PUBREC, pid=pid)
    if step in ("PUBREL", "PUBCOMP"):
        client.ack(T.PUBREL, pid)
    if step == "PUBCOMP":
        client.expect(T.PUBCOMP, pid=pid)
    client.close()
    client = at(cluster, back, name)
    assert client.connack is not None and client.connack.session_present
    if step == "PUBLISH":
        client.start_publish(topic, b"once", qos=2, dup=True, pid=pid)
        client.expect(T.PUBREC, pid=pid)
    if step != "PUBCOMP":
        client.release(pid)
    watching.message(b"once", topic=topic)
    # Whatever came twice would come before this.
    client.publish(topic, b"last", qos=2)
    watching.message(b"last", topic=topic)


@pytest.mark.parametrize("back", [0, 1], ids=["same-node", "other-node"])
@pytest.mark.parametrize("step", ["PUBLISH", "PUBREC", "PUBREL", "PUBCOMP"])
def test_a_subscriber_that_is_cut_off_at_a_step_gets_it_once(cluster: Cluster, step: str, back: int) -> None:
    """MQ-06: it has read PUBLISH, has sent PUBREC, has read PUBREL, has sent PUBCOMP; then its connection breaks. A packet that it has answered
    does not come to it once more; a packet that it has not answered comes again, with the same packet identifier."""
    topic, name = f"cut-off/{step}/{back}", f"subscriber {step} {back}"
    client, publisher = at(cluster, 0, name), at(cluster, 2, f"for {name}", clean=True)
    client.subscribe(topic, qos=2)
    publisher.publish(topic, b"once", qos=2)
    got = client.expect(T.PUBLISH)
    if step != "PUBLISH":
        client.ack(T.PUBREC, got.pid)
    if step in ("PUBREL", "PUBCOMP"):
        client.expect(T.PUBREL, pid=got.pid)
    if step == "PUBCOMP":
        client.ack(T.PUBCOMP, got.pid)
    client.drop()
    client = at(cluster, back, name)
    assert client.connack is not None and client.connack.session_present
    if step == "PUBLISH":
        again = client.expect(T.PUBLISH)
        assert (again.payload, again.pid, again.dup) == (b"once", got.pid, True)
        client.finish(again)
    elif step != "PUBCOMP":
        client.expect(T.PUBREL, pid=got.pid)
        client.ack(T.PUBCOMP, got.pid)
    publisher.publish(topic, b"last", qos=2)
    client.message(b"last")
    publisher.close()
    client.close()


@pytest.mark.parametrize("node", [0, 1], ids=["same-node", "other-node"])
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_ten_thousand_numbered_messages_come_in_order(cluster: Cluster, qos: int, node: int) -> None:
    """MQ-13: from one publisher to one topic, at one node and from one node to another."""
    topic = f"numbered/{qos}/{node}"
    reader, publisher = at(cluster, 0, f"reader {topic}", clean=True), at(cluster, node, f"publisher {topic}", clean=True)
    reader.subscribe(topic, qos=qos)
    for start in range(0, COUNT, AT_ONCE):
        numbers = range(start, start + AT_ONCE)
        pids = [publisher.start_publish(topic, str(number), qos=qos) for number in numbers]
        for pid in pids if qos else []:
            if qos == 1:
                publisher.expect(T.PUBACK, pid=pid)
            else:
                publisher.expect(T.PUBREC, pid=pid)
                publisher.release(pid)
        for number in numbers:
            reader.message(str(number))
    reader.nothing()
    publisher.close()
    reader.close()
