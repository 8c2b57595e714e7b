"""Retained messages. In a cluster every node must serve them; the tests wait until each of them does."""

from __future__ import annotations

from typing import Any

import pytest

from marks import both, each_qos, timed, v3, v5
from mqttwire import V5, V311


@both
@each_qos
@v3("3.3.1-5", "3.3.1-6", "3.3.1-8", "3.3.1-7")
@v5("3.3.1-5", "3.3.1-9")
def test_new_subscriber_gets_it(net: Any, version: int, qos: int) -> None:
    """The last retained message comes to each new subscriber, marked as retained."""
    topic = net.topic()
    net.retain(topic, b"first", qos, version)
    net.retain(topic, b"last", qos, version)
    for _ in range(3):
        client = net.client(version)
        client.subscribe(topic, qos=2)
        client.message(b"last", retain=True, qos=qos, topic=topic)
        client.nothing()


@both
@v3("3.3.1-9")
@v5("3.3.1-12")
def test_live_copy_has_no_flag(net: Any, version: int) -> None:
    """A subscriber that is already there gets the message without the retain flag."""
    client, publisher, topic = net.client(version), net.client(version), net.topic()
    client.subscribe(topic, qos=1)
    publisher.publish(topic, b"live", qos=1, retain=True)
    client.message(b"live", retain=False)
    net.quiet(client, publisher)


@both
@pytest.mark.parametrize("stored", [0, 1, 2])
@pytest.mark.parametrize("granted", [0, 1, 2])
@v3("3.3.1-5", "3.8.4-6")
@v5("3.3.1-5", "3.8.4-8")
def test_qos_of_retained(net: Any, version: int, stored: int, granted: int) -> None:
    """It is stored with its QoS and sent with the smaller of that and the granted one."""
    client, topic = net.client(version), net.topic()
    net.retain(topic, b"q", stored, version)
    client.subscribe(topic, qos=granted)
    client.message(b"q", qos=min(stored, granted))


@both
@each_qos
@v3("3.3.1-10", "3.3.1-11")
@v5("3.3.1-6", "3.3.1-7")
def test_empty_payload_removes(net: Any, version: int, qos: int) -> None:
    """A retained message without payload removes the stored one and is itself not stored."""
    publisher, topic = net.client(version), net.topic()
    net.retain(topic, b"old", 1, version)
    publisher.publish(topic, b"", qos=qos, retain=True)
    publisher.ping()
    net.settle(topic, None)
    client = net.client(version)
    client.subscribe(topic, qos=1)
    net.quiet(client, publisher)


@both
@v3("3.3.1-10")
@v5("3.3.1-6")
def test_empty_payload_is_also_a_message(net: Any, version: int) -> None:
    """Subscribers that are there get the empty message like any other, without the flag."""
    client, publisher, topic = net.client(version), net.client(version), net.topic()
    client.subscribe(topic, qos=1)
    publisher.publish(topic, b"", qos=1, retain=True)
    client.message(b"", retain=False, topic=topic)
    net.quiet(client, publisher)


@both
@v3("3.3.1-12")
@v5("3.3.1-8")
def test_ordinary_message_is_not_stored(net: Any, version: int) -> None:
    """Without the flag nothing is stored, replaced or removed, not even by an empty payload."""
    publisher, topic = net.client(version), net.topic()
    publisher.publish(net.topic("other"), b"not stored", qos=1)
    net.retain(topic, b"stored", 1, version)
    for payload in (b"live", b""):
        publisher.publish(topic, payload, qos=1)
    client = net.client(version)
    client.subscribe(topic, net.topic("other"), qos=1)
    client.message(b"stored", retain=True)
    net.quiet(client, publisher)


@both
@v3("3.3.1-6")
@v5("3.3.1-9")
@pytest.mark.parametrize("wanted", ["+/x", "r/#", "#", "+/+"])
def test_wildcards_find_all(net: Any, version: int, wanted: str) -> None:
    """A filter with wildcards brings every retained message that it covers."""
    names = [f"r/{number}/x" for number in range(5)] + ["r"]
    for name in names:
        net.retain(net.topic(name), name, 1, version)
    client, inside = net.client(version), {"+/x": "r/+/x", "r/#": "r/#", "#": "#", "+/+": "+/+/+"}[wanted]
    expected = {name for name in names if inside in ("r/#", "#") or name != "r"}
    client.subscribe(net.topic(inside), qos=1)
    got = [client.message(retain=True) for _ in expected]
    assert {one.payload.decode() for one in got} == expected
    assert all(one.topic == net.topic(one.payload.decode()) for one in got)
    client.nothing()


@both
@v3("4.7.2-1")
@v5("4.7.2-1")
def test_retained_dollar_topics_stay_hidden(net: Any, version: int) -> None:
    """Subscribing to # does not bring retained messages of topics that start with $, like those of the broker."""
    client = net.client(version)
    client.subscribe("+/+", "#")
    client.ping()
    assert not [one.topic for one in client.inbox if one.topic.startswith("$")]


@v3("3.8.4-3")
@v5("3.3.1-9", "3.8.4-4")
@both
def test_subscribing_again_sends_again(net: Any, version: int) -> None:
    """Each SUBSCRIBE brings the retained message again."""
    client, topic = net.client(version), net.topic()
    net.retain(topic, b"kept", 1, version)
    for _ in range(3):
        client.subscribe(topic, qos=1)
        client.message(b"kept", retain=True)


@both
@v3("3.1.2-7")
@v5("4.1.0-2")
def test_it_outlives_the_session(net: Any, version: int) -> None:
    """Retained messages are no part of the session that published them."""
    name, topic = net.new_id(), net.topic()
    publisher = net.client(version, name)
    publisher.publish(topic, b"kept", qos=1, retain=True)
    publisher.disconnect()
    net.client(version, name).disconnect()
    net.settle(topic, b"kept")
    client = net.client(version)
    client.subscribe(topic)
    client.message(b"kept", retain=True)


@pytest.mark.parametrize(("first", "second"), [(V311, V5), (V5, V311)], ids=["v311-to-v5", "v5-to-v311"])
@v3("3.3.1-6")
@v5("3.3.1-9")
def test_retained_between_versions(net: Any, first: int, second: int) -> None:
    """A retained message from a client of one version reaches a client of the other."""
    topic = net.topic()
    net.retain(topic, b"both", 1, first)
    client = net.client(second)
    client.subscribe(topic, qos=1)
    client.message(b"both", retain=True)


@v5("3.3.2-4", "3.3.2-15", "3.3.2-16", "3.3.2-17", "3.3.2-18", "3.3.2-20")
def test_properties_are_stored(net: Any) -> None:
    """The properties of a retained message come back with it."""
    props = {
        "payload_format_indicator": 1, "content_type": "text/plain", "response_topic": "answer/here",
        "correlation_data": b"\x00\xff", "user_property": [("b", "1"), ("a", "2"), ("b", "1")],
    }
    topic = net.topic()
    net.retain(topic, "text", props=props)
    client = net.client(V5)
    client.subscribe(topic)
    assert client.message(b"text").props == props


@timed
@v5("3.3.2-5", "3.3.2-6")
def test_retained_expiry(net: Any) -> None:
    """A retained message counts its expiry down and is gone afterwards."""
    topic, lasting = net.topic("short"), net.topic("long")
    net.retain(topic, b"short", props={"message_expiry_interval": 3})
    net.retain(lasting, b"long", props={"message_expiry_interval": 100})
    net.client(V5).rest(4.5)
    client = net.client(V5)
    client.subscribe(topic, lasting, qos=1)
    got = client.message(b"long", retain=True)
    assert 90 <= got.props["message_expiry_interval"] <= 97
    net.quiet(client, client)


@both
@v3("3.3.1-5")
@v5("3.3.1-5")
def test_many_updates(net: Any, version: int) -> None:
    """Of many updates in a row the last one stays."""
    publisher, topic = net.client(version), net.topic()
    for number in range(50):
        publisher.publish(topic, str(number), qos=1, retain=True)
    net.settle(topic, b"49")
    client = net.client(version)
    client.subscribe(topic, qos=1)
    client.message(b"49", retain=True)
    client.nothing()
