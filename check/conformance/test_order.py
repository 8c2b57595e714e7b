"""Order of messages: those of one publisher to a topic arrive in the order in which they were sent, wherever the subscriber is."""

from __future__ import annotations

from typing import Any

import pytest

import mqttwire as w
from marks import acked_qos, both, each_qos, v3, v5
from mqttwire import V5, T

COUNT = 200


def _numbers(client: Any, count: int) -> list[int]:
    return [int(client.message().payload) for _ in range(count)]


@both
@each_qos
@v3("4.6.0-5", "4.6.0-6")
@v5("4.6.0-5", "4.6.0-6")
def test_order_of_one_publisher(net: Any, version: int, qos: int) -> None:
    """Messages of one topic and QoS keep their order, for every subscriber."""
    subscribers, publisher, topic = [net.client(version) for _ in range(2)], net.client(version), net.topic()
    for subscriber in subscribers:
        subscriber.subscribe(topic, qos=2)
    batch = publisher.window(10)
    for start in range(0, COUNT, batch):
        pids = [publisher.start_publish(topic, str(start + number), qos=qos) for number in range(batch)]
        _finish(publisher, pids, qos)
        for subscriber in subscribers:
            assert _numbers(subscriber, batch) == list(range(start, start + batch))


def _finish(publisher: Any, pids: list[int], qos: int) -> None:
    """The rest of the handshakes of a batch, in the order in which the broker acknowledges."""
    if qos == 1:
        for _ in pids:
            assert publisher.expect(T.PUBACK).pid in pids
    elif qos == 2:
        for _ in pids:
            publisher.ack(T.PUBREL, publisher.expect(T.PUBREC).pid)
        for _ in pids:
            assert publisher.expect(T.PUBCOMP).pid in pids


@both
@v3("4.6.0-6")
@v5("4.6.0-5")
def test_order_of_two_publishers(net: Any, version: int) -> None:
    """Two publishers may mix, but each keeps its own order."""
    subscriber, topic = net.client(version), net.topic()
    publishers = [net.client(version), net.client(version)]
    subscriber.subscribe(topic, qos=1)
    for number in range(40):
        for index, publisher in enumerate(publishers):
            publisher.publish(topic, f"{index} {number}", qos=1)
    got = [subscriber.message().payload.split() for _ in range(80)]
    for name in (b"0", b"1"):
        assert [int(number) for who, number in got if who == name] == list(range(40))


@both
@v3("4.6.0-6")
@v5("4.6.0-5")
def test_order_through_a_wildcard(net: Any, version: int) -> None:
    """A wildcard subscription sees the messages of each topic in order."""
    subscriber, publisher = net.client(version), net.client(version)
    subscriber.subscribe(net.topic("+"), qos=1)
    for number in range(60):
        publisher.publish(net.topic(f"t{number % 3}"), str(number), qos=1)
    seen: dict[str, list[int]] = {}
    for _ in range(60):
        got = subscriber.message()
        seen.setdefault(got.topic, []).append(int(got.payload))
    assert all(numbers == sorted(numbers) and len(numbers) == 20 for numbers in seen.values())


@both
@acked_qos
@v3("4.6.0-6", "3.1.2-5")
@v5("4.6.0-5", "4.5.0-1")
def test_order_of_waiting_messages(net: Any, version: int, qos: int) -> None:
    """Messages that were published before, while and after the client was away come in one order."""
    name, publisher, topic = net.new_id(), net.client(version), net.topic()
    client = net.session(version, name)
    client.subscribe(topic, qos=qos)
    for number in range(5):
        publisher.publish(topic, str(number), qos=qos)
    assert _numbers(client, 5) == list(range(5))
    client.disconnect()
    for number in range(5, 15):
        publisher.publish(topic, str(number), qos=qos)
    client = net.session(version, name)
    for number in range(15, 20):
        publisher.publish(topic, str(number), qos=qos)
    assert _numbers(client, 15) == list(range(5, 20))


@both
@acked_qos
@v3("4.6.0-1", "4.6.0-6", "4.4.0-1")
@v5("4.4.0-1", "4.6.0-5", "4.6.0-1")
def test_order_of_repetition(net: Any, version: int, qos: int) -> None:
    """Unacknowledged messages are sent again in their first order, ahead of newer ones."""
    name, publisher, topic = net.new_id(), net.client(version), net.topic()
    client = net.session(version, name)
    client.subscribe(topic, qos=qos)
    for number in range(6):
        publisher.publish(topic, str(number), qos=qos)
    pids = [client.expect(T.PUBLISH).pid for _ in range(6)]
    client.drop()
    publisher.publish(topic, b"6", qos=qos)
    client = net.session(version, name)
    got = [client.expect(T.PUBLISH) for _ in range(7)]
    assert [int(one.payload) for one in got] == list(range(7))
    assert [one.pid for one in got[:6]] == pids
    assert [one.dup for one in got] == [True] * 6 + [False]


@both
@v3("4.6.0-1", "4.4.0-1")
@v5("4.4.0-1")
def test_partly_acknowledged(net: Any, version: int) -> None:
    """Only unacknowledged messages are sent again."""
    name, publisher, topic = net.new_id(), net.client(version), net.topic()
    client = net.session(version, name)
    client.subscribe(topic, qos=1)
    for number in range(6):
        publisher.publish(topic, str(number), qos=1)
    got = [client.expect(T.PUBLISH) for _ in range(6)]
    for one in got[:3]:
        client.ack(T.PUBACK, one.pid)
    client.ping()
    client.close()
    client = net.session(version, name)
    assert _numbers(client, 3) == [3, 4, 5]
    net.quiet(client, publisher)


@both
@v3("4.3.2-2", "4.6.0-2")
@v5("4.6.0-2")
def test_acknowledged_out_of_order(net: Any, version: int) -> None:
    """The broker takes PUBACKs in any order."""
    client, publisher, topic = net.client(version), net.client(version), net.topic()
    client.subscribe(topic, qos=1)
    for number in range(6):
        publisher.publish(topic, str(number), qos=1)
    pids = [client.expect(T.PUBLISH).pid for _ in range(6)]
    for pid in reversed(pids):
        client.ack(T.PUBACK, pid)
    net.quiet(client, publisher)


@both
@v3("4.6.0-6")
@v5("4.6.0-5")
@pytest.mark.parametrize("qos", [0, 1])
def test_order_in_one_segment(net: Any, version: int, qos: int) -> None:
    """Messages written at once keep their order."""
    client, publisher, topic = net.client(version), net.client(version), net.topic()
    client.subscribe(topic, qos=qos)
    count = publisher.window(15)
    data = [w.publish(version, topic, str(number).encode(), qos=qos, pid=number + 1) for number in range(count)]
    publisher.send(b"".join(data))
    assert _numbers(client, count) == list(range(count))


@v5("4.6.0-5")
def test_order_with_receive_maximum(net: Any) -> None:
    """A narrow quota changes nothing about the order."""
    client, publisher, topic = net.client(V5, props={"receive_maximum": 2}), net.client(V5), net.topic()
    client.subscribe(topic, qos=2)
    for number in range(30):
        publisher.publish(topic, str(number), qos=2)
    assert _numbers(client, 30) == list(range(30))
