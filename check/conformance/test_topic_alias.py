"""Topic aliases of MQTT 5.0, in both directions."""

from __future__ import annotations

from typing import Any

import pytest

from client import Client
from marks import expects_reason, v5
from mqttwire import V5


def _publisher(net: Any, needed: int = 1) -> tuple[Client, int]:
    """A publisher and how many aliases the broker takes from it."""
    client = net.client(V5)
    maximum = client.connack.props.get("topic_alias_maximum", 0)
    if maximum < needed:
        pytest.skip(f"the broker takes {maximum} topic aliases")
    return client, maximum


def _alias(client: Client, topic: str, alias: int, payload: str, qos: int = 1) -> None:
    client.publish(topic, payload, qos=qos, props={"topic_alias": alias})


@v5("3.3.2-12")
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_alias_stands_for_the_topic(net: Any, qos: int) -> None:
    """Set with a topic, then used without; the subscriber sees the topic."""
    publisher, _ = _publisher(net)
    subscriber, topic = net.client(V5), net.topic()
    subscriber.subscribe(topic, qos=qos)
    _alias(publisher, topic, 1, "set", qos)
    for number in range(3):
        _alias(publisher, "", 1, f"used {number}", qos)
    for payload in ("set", "used 0", "used 1", "used 2"):
        got = subscriber.message(payload, topic=topic)
        assert "topic_alias" not in got.props


@v5("3.3.2-12")
def test_every_alias_up_to_the_maximum(net: Any) -> None:
    """All values from 1 to the broker's maximum can be used."""
    publisher, maximum = _publisher(net)
    numbers = sorted({*range(1, min(maximum, 40) + 1), maximum})
    subscriber = net.client(V5)
    subscriber.subscribe(net.topic("#"), qos=1)
    for number in numbers:
        _alias(publisher, net.topic(str(number)), number, "set")
        subscriber.message("set", topic=net.topic(str(number)))
    for number in reversed(numbers):
        _alias(publisher, "", number, "used")
        subscriber.message("used", topic=net.topic(str(number)))


@v5("3.3.2-12")
def test_alias_can_change(net: Any) -> None:
    """The same alias with another topic stands for that from then on."""
    publisher, _ = _publisher(net)
    subscriber = net.client(V5)
    subscriber.subscribe(net.topic("+"), qos=1)
    for rest in "aba":
        _alias(publisher, net.topic(rest), 1, "set")
        subscriber.message("set", topic=net.topic(rest))
        _alias(publisher, "", 1, "used")
        subscriber.message("used", topic=net.topic(rest))


@v5("3.3.2-12")
def test_two_aliases_of_one_topic(net: Any) -> None:
    """One topic may have several aliases, and still be sent without."""
    publisher, _ = _publisher(net, 2)
    subscriber, topic = net.client(V5), net.topic()
    subscriber.subscribe(topic, qos=1)
    _alias(publisher, topic, 1, "one")
    _alias(publisher, topic, 2, "two")
    _alias(publisher, "", 1, "one again")
    publisher.publish(topic, "plain", qos=1)
    for payload in ("one", "two", "one again", "plain"):
        subscriber.message(payload, topic=topic)


@v5("3.3.2-12", "3.3.1-5")
def test_alias_with_retain(net: Any) -> None:
    """A retained message sent by alias is stored under its topic."""
    publisher, _ = _publisher(net)
    topic = net.topic()
    publisher.publish(topic, b"", qos=1, retain=True, props={"topic_alias": 1})
    publisher.publish("", b"kept", qos=1, retain=True, props={"topic_alias": 1})
    net.settle(topic, b"kept")
    subscriber = net.client(V5)
    subscriber.subscribe(topic, qos=1)
    subscriber.message(b"kept", topic=topic, retain=True)


@v5("3.3.2-7")
def test_aliases_of_two_clients(net: Any) -> None:
    """Each connection has its own aliases."""
    (first, _), (second, _) = _publisher(net), _publisher(net)
    subscriber = net.client(V5)
    subscriber.subscribe(net.topic("+"), qos=1)
    _alias(first, net.topic("a"), 1, "a")
    subscriber.message("a")
    _alias(second, net.topic("b"), 1, "b")
    subscriber.message("b")
    for client, rest in ((first, "a"), (second, "b")):
        _alias(client, "", 1, "again")
        subscriber.message("again", topic=net.topic(rest))


def _forgotten(net: Any) -> Client:
    """A resumed session that uses an alias of its former connection."""
    name = net.new_id()
    client = net.session(V5, name)
    if not client.connack.props.get("topic_alias_maximum", 0):
        pytest.skip("the broker takes no topic aliases")
    _alias(client, net.topic(), 1, "set")
    client.disconnect()
    again: Client = net.session(V5, name)
    again.start_publish("", "used", qos=1, props={"topic_alias": 1})
    return again


def _unknown(net: Any) -> Client:
    """A client that uses an alias that was never set."""
    client, maximum = _publisher(net)
    client.start_publish("", "x", props={"topic_alias": maximum})
    return client


def _beyond(net: Any) -> Client:
    """A client that uses an alias above the broker's maximum."""
    client, maximum = _publisher(net, 0)
    if maximum == 65535:
        pytest.skip("the broker takes every alias")
    client.start_publish(net.topic(), "x", props={"topic_alias": maximum + 1})
    return client


WRONG = pytest.mark.parametrize(("wrong", "reasons"), [
    pytest.param(_forgotten, (0x82,), id="forgotten"),
    pytest.param(_unknown, (0x82,), id="unknown"),
    pytest.param(_beyond, (0x94,), id="beyond"),
])


@WRONG
@v5("3.3.2-7", "3.3.2-9", "3.2.2-17", "3.2.2-18", "4.13.1-1")
def test_wrong_alias(net: Any, wrong: Any, reasons: tuple[int, ...]) -> None:
    """An alias that is not set on this connection or above the maximum ends the connection."""
    wrong(net).expect_closed()


@expects_reason
@WRONG
@v5("3.3.2-7", "3.3.2-9", "4.13.1-1")
def test_wrong_alias_says_why(net: Any, wrong: Any, reasons: tuple[int, ...]) -> None:
    """A protocol error for one that is not set, topic alias invalid for one above the maximum."""
    wrong(net).expect_closed(*reasons, must_say=True)


@v5("3.1.2-27", "3.1.2-26")
@pytest.mark.parametrize("props", [{}, {"topic_alias_maximum": 0}], ids=["absent", "zero"])
def test_no_aliases_to_a_client_that_takes_none(net: Any, props: dict[str, int]) -> None:
    """Without a maximum the broker always names the topic."""
    subscriber, publisher, topic = net.client(V5, props=props), net.client(V5), net.topic()
    subscriber.subscribe(topic, qos=1)
    for number in range(10):
        publisher.publish(topic, str(number), qos=1)
        got = subscriber.message(str(number), topic=topic)
        assert "topic_alias" not in got.props


@v5("3.1.2-26", "3.3.2-11", "3.3.2-8")
@pytest.mark.parametrize("maximum", [1, 3, 65535])
def test_aliases_to_a_client(net: Any, maximum: int) -> None:
    """If the broker uses aliases, they stay within the maximum, are set before use and mean the right topic."""
    subscriber, publisher = net.client(V5, props={"topic_alias_maximum": maximum}), net.client(V5)
    subscriber.subscribe(net.topic("+"), qos=1)
    known: dict[int, str] = {}
    for number in range(40):
        topic = net.topic(f"t{number % 5}")
        publisher.publish(topic, str(number), qos=1)
        got = subscriber.message(str(number))
        alias = got.props.get("topic_alias")
        assert alias is None or 1 <= alias <= maximum
        if alias is not None and got.topic:
            known[alias] = got.topic
        assert (got.topic or known[alias]) == topic


@v5("3.3.2-7")
def test_aliases_to_a_client_are_set_anew(net: Any) -> None:
    """After a reconnect the broker does not use aliases of the former connection."""
    name, publisher, topic = net.new_id(), net.client(V5), net.topic()
    for _ in range(3):
        client = net.session(V5, name, props={"topic_alias_maximum": 10})
        client.subscribe(topic, qos=1)
        publisher.publish(topic, b"first", qos=1)
        client.message(b"first", topic=topic)
        publisher.publish(topic, b"second", qos=1)
        client.message(b"second")
        client.disconnect()
