"""Properties of messages and answers in MQTT 5.0."""

from __future__ import annotations

from typing import Any

import pytest

import mqttwire as w
from marks import each_qos, timed, v5
from mqttwire import V5, V311, T

PROPERTIES = [
    {"payload_format_indicator": 1},
    {"payload_format_indicator": 0},
    {"content_type": "text/plain; charset=utf-8"},
    {"content_type": ""},
    {"response_topic": "answers/to/me"},
    {"correlation_data": bytes(range(256))},
    {"correlation_data": b""},
    {"user_property": [("key", "value")]},
    {"user_property": [("b", "1"), ("a", "2"), ("b", "1"), ("b", "0"), ("", "")]},
    {"user_property": [("\ufeffk\u00e9y", "\U0001f41d")]},
    {"user_property": [(f"k{number}", "v" * number) for number in range(50)]},
]


@each_qos
@pytest.mark.parametrize("props", PROPERTIES, ids=lambda props: "-".join(props) + str(len(str(props))))
@v5("3.3.2-4", "3.3.2-15", "3.3.2-16", "3.3.2-17", "3.3.2-18", "3.3.2-20", "1.5.4-3", "1.5.7-1")
def test_properties_are_passed_on(net: Any, qos: int, props: dict[str, Any]) -> None:
    """The properties that the publisher gives its message come unaltered, and nothing is added."""
    subscriber, publisher, topic = net.client(V5), net.client(V5), net.topic()
    subscriber.subscribe(topic, qos=qos)
    publisher.publish(topic, b"text", qos=qos, props=props)
    got = subscriber.message(b"text").props
    assert got in (props, {**props, "payload_format_indicator": 0})


@v5("3.3.2-4", "3.3.2-15", "3.3.2-16", "3.3.2-17", "3.3.2-20")
def test_all_properties_to_all_subscribers(net: Any) -> None:
    """All of them at once, to several subscribers, one of them away at the time."""
    props = {
        "payload_format_indicator": 1, "content_type": "t", "response_topic": "r", "correlation_data": b"c",
        "user_property": [("u", "1"), ("u", "2")],
    }
    name, topic, publisher = net.new_id(), net.topic(), net.client(V5)
    away = net.session(V5, name)
    clients = [net.client(V5), net.client(V5)]
    for client in (away, *clients):
        client.subscribe(topic, qos=1)
    away.disconnect()
    publisher.publish(topic, b"all", qos=1, props=props)
    for client in (*clients, net.session(V5, name)):
        assert client.message(b"all").props == props


@v5("3.3.2-17")
def test_empty_properties_stay_empty(net: Any) -> None:
    """A message without properties, from either version, arrives without."""
    subscriber, topic = net.client(V5), net.topic()
    subscriber.subscribe(topic, qos=1)
    for version in (V311, V5):
        net.client(version).publish(topic, b"bare", qos=1)
        assert subscriber.message(b"bare").props in ({}, {"payload_format_indicator": 0})


@v5("3.3.2-6")
@each_qos
def test_expiry_is_passed_on(net: Any, qos: int) -> None:
    """The message expiry comes with the message, less the time it waited."""
    subscriber, publisher, topic = net.client(V5), net.client(V5), net.topic()
    subscriber.subscribe(topic, qos=qos)
    publisher.publish(topic, b"x", qos=qos, props={"message_expiry_interval": 1000})
    assert 990 <= subscriber.message(b"x").props["message_expiry_interval"] <= 1000


@timed
@v5("3.3.2-6", "3.3.2-5")
def test_expiry_counts_down(net: Any) -> None:
    """A message that waited for its subscriber has less time left; one whose time is over does not come."""
    name, publisher, topic = net.new_id(), net.client(V5), net.topic()
    client = net.session(V5, name)
    client.subscribe(topic, qos=1)
    client.disconnect()
    publisher.publish(topic, b"short", qos=1, props={"message_expiry_interval": 1})
    publisher.publish(topic, b"long", qos=1, props={"message_expiry_interval": 100})
    publisher.publish(topic, b"endless", qos=1)
    publisher.rest(4)
    client = net.session(V5, name)
    assert 90 <= client.message(b"long").props["message_expiry_interval"] <= 97
    assert "message_expiry_interval" not in client.message(b"endless").props
    net.quiet(client, publisher)


@timed
@v5("4.3.3-7", "4.3.3-13", "4.4.0-1")
def test_expiry_is_not_for_messages_on_their_way(net: Any) -> None:
    """A QoS 2 message already sent is sent again and finished although its time is over."""
    name, publisher, topic = net.new_id(), net.client(V5), net.topic()
    client = net.session(V5, name)
    client.subscribe(topic, qos=2)
    publisher.publish(topic, b"begun", qos=2, props={"message_expiry_interval": 1})
    pid = client.expect(T.PUBLISH).pid
    client.close()
    publisher.rest(3)
    client = net.session(V5, name)
    client.message(b"begun", pid=pid, dup=True)
    net.quiet(client, publisher)


@timed
@v5("4.3.3-13", "4.3.3-11")
def test_expired_qos2_is_still_acknowledged(net: Any) -> None:
    """The publisher's handshake goes on after the message has expired."""
    publisher = net.client(V5)
    pid = publisher.start_publish(net.topic(), b"x", qos=2, props={"message_expiry_interval": 1})
    publisher.expect(T.PUBREC, pid=pid)
    publisher.rest(3)
    assert publisher.release(pid).reason == 0


@v5("3.1.2-29")
def test_no_problem_information(net: Any) -> None:
    """A client that does not want problem information gets no reason strings in acknowledgements."""
    client = net.client(V5, props={"request_problem_information": 0})
    client.start_publish(net.topic("nobody"), b"x", qos=1, pid=1)
    client.start_publish(net.topic("nobody"), b"x", qos=2, pid=2)
    got = [client.expect(T.PUBACK), client.expect(T.PUBREC), client.release(2), client.release(3000)]
    got += [client.try_subscribe(net.topic()), client.unsubscribe(net.topic("none"))]
    client.send(w.subscribe(V5, 700, [("bad/#/filter", 0), ("$share//x", 0)]))
    last = client.read_until(T.SUBACK)
    for one in got + ([last] if last else []):
        assert "reason_string" not in one.props and "user_property" not in one.props


@v5("3.3.2-17")
def test_user_properties_elsewhere(net: Any) -> None:
    """User properties of SUBSCRIBE, UNSUBSCRIBE and acknowledgements are for the broker and go no further."""
    extra = {"user_property": [("x", "y")]}
    client, publisher, topic = net.client(V5, props=extra), net.client(V5), net.topic()
    client.subscribe(topic, qos=2, props=extra)
    for qos in (1, 2):
        publisher.publish(topic, b"x", qos=qos)
        got = client.expect(T.PUBLISH)
        assert got.props == {}
        client.ack(T.PUBACK if qos == 1 else T.PUBREC, got.pid, 0, {**extra, "reason_string": "fine"})
    pid = client.expect(T.PUBREL).pid
    client.ack(T.PUBCOMP, pid, 0, extra)
    client.unsubscribe(topic, props=extra)
    client.disconnect(0, {**extra, "reason_string": "done"})


@v5("3.4.2-1", "2.2.2-1")
def test_long_forms_are_accepted(net: Any) -> None:
    """Acknowledgements may spell out a reason of 0 and empty properties, or leave them away."""
    client, publisher, topic = net.client(V5), net.client(V5), net.topic()
    client.subscribe(topic, qos=1)
    for tail in (b"", b"\x00", b"\x00\x00", b"\x10\x00"):
        publisher.publish(topic, tail, qos=1)
        got = client.expect(T.PUBLISH)
        client.send(w.packet(0x40, w.u16(got.pid) + tail))
    net.quiet(client, publisher)
    publisher.start_publish(topic, b"x", qos=2, pid=60)
    publisher.expect(T.PUBREC, pid=60)
    publisher.send(b"\x62\x04\x00\x3c\x00\x00")
    publisher.expect(T.PUBCOMP, pid=60)
    publisher.send(b"\xe0\x02\x00\x00")
    publisher.read_until_closed()
