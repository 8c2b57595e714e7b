"""Receive Maximum and Maximum Packet Size of MQTT 5.0."""

from __future__ import annotations

from typing import Any

import pytest

import mqttwire as w
from client import Client
from marks import acked_qos, expects_reason, timed, v5
from mqttwire import V5, T


def _flooded(net: Any, maximum: int, qos: int, count: int) -> tuple[Client, Client]:
    """A subscriber with this Receive Maximum for which `count` messages are on their way, and the publisher."""
    subscriber, publisher = net.client(V5, props={"receive_maximum": maximum}), net.client(V5)
    subscriber.subscribe(net.topic(), qos=qos)
    for number in range(count):
        publisher.publish(net.topic(), str(number), qos=qos)
    return subscriber, publisher


def _fill(subscriber: Client, maximum: int) -> list[Any]:
    """Takes as many messages as the quota allows and checks that no more come."""
    got = [subscriber.expect(T.PUBLISH) for _ in range(maximum)]
    subscriber.nothing()
    return got


@acked_qos
@pytest.mark.parametrize("maximum", [1, 2, 5])
@v5("3.3.4-9", "4.9.0-1", "4.9.0-2", "4.9.0-3", "3.3.4-10")
def test_receive_maximum(net: Any, qos: int, maximum: int) -> None:
    """Never more than that many unacknowledged; every finished handshake makes room for one; pings are answered."""
    subscriber, publisher = _flooded(net, maximum, qos, 12)
    waiting = _fill(subscriber, maximum)
    for number in range(12):
        got = waiting.pop(0)
        assert got.payload == str(number).encode()
        subscriber.finish(got)
        if number + maximum < 12:
            waiting.append(subscriber.expect(T.PUBLISH))
        subscriber.nothing()
    net.quiet(subscriber, publisher)


@v5("3.3.4-9", "4.9.0-2")
def test_pubrec_alone_makes_no_room(net: Any) -> None:
    """A QoS 2 message counts until its PUBCOMP."""
    subscriber, _ = _flooded(net, 1, 2, 3)
    got = _fill(subscriber, 1)[0]
    subscriber.ack(T.PUBREC, got.pid)
    subscriber.expect(T.PUBREL, pid=got.pid)
    subscriber.nothing()
    subscriber.ack(T.PUBCOMP, got.pid)
    subscriber.message(b"1")
    subscriber.message(b"2")


@v5("3.3.4-9", "4.9.0-2")
def test_refusing_pubrec_makes_room(net: Any) -> None:
    """A PUBREC with an error ends the handshake."""
    subscriber, _ = _flooded(net, 1, 2, 2)
    got = _fill(subscriber, 1)[0]
    subscriber.ack(T.PUBREC, got.pid, 0x80)
    subscriber.message(b"1")


@v5("3.3.4-10", "4.9.0-3")
def test_other_packets_go_on(net: Any) -> None:
    """With the quota used up, subscribing, unsubscribing, publishing and pings still work."""
    subscriber, _ = _flooded(net, 1, 1, 3)
    got = _fill(subscriber, 1)[0]
    subscriber.subscribe(net.topic("other"))
    subscriber.unsubscribe(net.topic("other"))
    subscriber.publish(net.topic("out"), b"1", qos=1)
    subscriber.publish(net.topic("out"), b"2", qos=2)
    subscriber.ping()
    subscriber.finish(got)
    subscriber.message(b"1")
    subscriber.message(b"2")


@acked_qos
@v5("3.3.4-9", "4.9.0-1", "4.4.0-1")
def test_receive_maximum_after_a_reconnect(net: Any, qos: int) -> None:
    """The value belongs to the connection: messages that waited for the client are sent within the new one."""
    name, publisher = net.new_id(), net.client(V5)
    client = net.session(V5, name)
    client.subscribe(net.topic(), qos=qos)
    client.disconnect()
    for number in range(8):
        publisher.publish(net.topic(), str(number), qos=qos)
    client = net.session(V5, name, props={"receive_maximum": 2})
    waiting = _fill(client, 2)
    client.close()
    client = net.session(V5, name, props={"receive_maximum": 3})
    again = _fill(client, 3)
    assert [one.dup for one in again] == [True, True, False]
    assert [one.pid for one in again[:2]] == [one.pid for one in waiting]
    for one in again:
        client.finish(one)
    for number in range(3, 8):
        client.message(str(number))


@v5("3.3.4-9")
def test_qos0_is_not_counted(net: Any) -> None:
    """Messages of QoS 0 do not use up the quota."""
    subscriber, publisher = net.client(V5, props={"receive_maximum": 1}), net.client(V5)
    subscriber.subscribe((net.topic("0"), 0), (net.topic("1"), 1))
    for number in range(10):
        publisher.publish(net.topic("0"), str(number))
    for number in range(10):
        subscriber.message(str(number))
    publisher.publish(net.topic("1"), b"acked", qos=1)
    subscriber.message(b"acked")


def _overrun(net: Any) -> Client:
    """A publisher that has sent one QoS 2 message more than the broker takes at once."""
    client: Client = net.client(V5)
    maximum = client.window(65535)
    if maximum > 5000:
        pytest.skip(f"the broker takes {maximum} messages at once")
    for pid in range(1, maximum + 2):
        client.send(w.publish(V5, net.topic(), b"x", qos=2, pid=pid))
    return client


@v5("3.3.4-7")
def test_publisher_exceeds_receive_maximum(net: Any) -> None:
    """A client that sends more than the broker's Receive Maximum is disconnected."""
    _overrun(net).expect_closed()


@expects_reason
@v5("3.3.4-7")
def test_publisher_exceeds_receive_maximum_says_why(net: Any) -> None:
    """The reason is 0x93."""
    _overrun(net).expect_closed(0x93, must_say=True)


@v5("4.9.0-1", "4.9.0-2")
def test_publisher_may_use_its_quota(net: Any) -> None:
    """As many QoS 2 messages at once as the broker takes are all received."""
    client = net.client(V5)
    count = min(client.connack.props.get("receive_maximum", 65535), 200)
    for pid in range(1, count + 1):
        client.send(w.publish(V5, net.topic(), b"x", qos=2, pid=pid))
    for pid in range(1, count + 1):
        client.expect(T.PUBREC, pid=pid)
    for pid in range(1, count + 1):
        client.release(pid)


@pytest.mark.parametrize("qos", [0, 1, 2])
@v5("3.1.2-24", "3.1.2-25")
def test_message_too_large_is_dropped(net: Any, qos: int) -> None:
    """A message that exceeds the client's Maximum Packet Size is left out for it, as if it had been sent."""
    small, large = net.client(V5, props={"maximum_packet_size": 200}), net.client(V5)
    publisher, topic = net.client(V5), net.topic()
    for client in (small, large):
        client.subscribe(topic, qos=2)
    for payload in (b"a", b"b" * 300, b"c"):
        publisher.publish(topic, payload, qos=qos)
    small.message(b"a")
    small.message(b"c")
    for payload in (b"a", b"b" * 300, b"c"):
        large.message(payload)
    net.quiet(small, publisher)


@v5("3.1.2-24", "3.1.2-25")
def test_maximum_packet_size_to_the_byte(net: Any) -> None:
    """A packet of exactly the maximum is sent, one byte more is not."""
    topic, publisher = net.topic(), net.client(V5)
    whole = len(w.publish(V5, topic, b"x" * 50, qos=1, pid=1))
    client = net.client(V5, props={"maximum_packet_size": whole})
    client.subscribe(topic, qos=1)
    publisher.publish(topic, b"y" * 51, qos=1)
    publisher.publish(topic, b"x" * 50, qos=1)
    assert len(client.message(b"x" * 50).raw) == whole


@v5("3.1.2-24")
def test_clients_with_room_for_little(net: Any) -> None:
    """CONNACK has only the properties that differ from the defaults, so that a client that takes 20 bytes is served."""
    client = net.client(V5, props={"maximum_packet_size": 20})
    client.ping()


@timed
@v5("3.1.2-25", "4.9.0-2")
def test_dropped_messages_use_no_quota(net: Any) -> None:
    """Messages too large for the client do not stop those behind them."""
    props = {"maximum_packet_size": 200, "receive_maximum": 1}
    client, publisher, topic = net.client(V5, props=props), net.client(V5), net.topic()
    client.subscribe(topic, qos=1)
    for number in range(10):
        publisher.publish(topic, b"z" * 300, qos=1)
        publisher.publish(topic, str(number), qos=1)
    for number in range(10):
        client.message(str(number))


@v5("3.1.2-25")
def test_waiting_message_too_large(net: Any) -> None:
    """The size of the connection that resumes the session counts."""
    name, publisher, topic = net.new_id(), net.client(V5), net.topic()
    client = net.session(V5, name)
    client.subscribe(topic, qos=1)
    client.disconnect()
    for payload in (b"one", b"l" * 500, b"two"):
        publisher.publish(topic, payload, qos=1)
    client = net.session(V5, name, props={"maximum_packet_size": 200})
    client.message(b"one")
    client.message(b"two")
    net.quiet(client, publisher)


@v5("3.4.2-2", "3.4.2-3", "3.9.2-1", "3.9.2-2", "3.11.2-1", "3.11.2-2", "3.5.2-2", "3.5.2-3", "3.7.2-2", "3.7.2-3")
def test_acknowledgements_fit(net: Any) -> None:
    """No reason string or user property makes an answer longer than the client takes."""
    client = net.client(V5, props={"maximum_packet_size": 60})
    client.publish(net.topic(), b"x", qos=1)
    client.publish(net.topic(), b"x", qos=2)
    got = [client.try_subscribe(net.topic()), client.unsubscribe(net.topic("a"), net.topic("b")), client.release(999)]
    assert all(len(one.raw) <= 60 for one in got)


def _too_large(net: Any) -> Client:
    """A client that has sent a packet larger than the broker takes."""
    client: Client = net.client(V5)
    maximum = (client.connack.props if client.connack else {}).get("maximum_packet_size", 2**28)
    if maximum > 20_000_000:
        pytest.skip(f"the broker takes packets up to {maximum} bytes")
    client.send(w.publish(V5, net.topic(), b"x" * maximum))
    return client


def _small(net: Any, room: int) -> Client:
    """A client that takes packets of this size at most, or of that of its CONNACK, without which there is no connection."""
    floor = len(net.client(V5, props={"maximum_packet_size": 1000}).connack.raw)
    return net.client(V5, props={"maximum_packet_size": max(room, floor)})


@v5("3.14.2-3", "3.14.2-4")
def test_disconnect_fits(net: Any) -> None:
    """DISCONNECT leaves its words out for a client that has no room for them."""
    forbidden = w.disconnect(V5, 0, {"session_expiry_interval": 60})
    first = net.client(V5)
    first.send(forbidden)
    said = [len(got.raw) for got in first.expect_closed() if got.type == T.DISCONNECT]
    client = _small(net, said[0] - 1 if said else 0)
    room = max(said[0] - 1 if said else 0, len(client.connack.raw))
    client.send(forbidden)
    for got in client.expect_closed():
        assert len(got.raw) <= room, got


@v5("3.6.2-2", "3.6.2-3")
def test_pubrel_fits(net: Any) -> None:
    """PUBREL with an error, for a message that the broker never sent, is not larger than the client takes."""
    client = _small(net, 0)
    client.ack(T.PUBREC, 4711)
    got = client.expect(T.PUBREL, pid=4711)
    assert got.reason in (0x00, 0x92) and len(got.raw) <= len(client.connack.raw)


@v5("3.2.2-15")
def test_packet_too_large_for_the_broker(net: Any) -> None:
    """A packet above the broker's Maximum Packet Size ends the connection."""
    _too_large(net).expect_closed()


@expects_reason
@v5("3.2.2-15")
def test_packet_too_large_for_the_broker_says_why(net: Any) -> None:
    """The reason is 0x95."""
    _too_large(net).expect_closed(0x95, must_say=True)
