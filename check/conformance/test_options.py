"""Subscription options and subscription identifiers of MQTT 5.0."""

from __future__ import annotations

from typing import Any

import pytest

from marks import v5
from mqttwire import V5, V311, T, sub_options

IDENTIFIER_MAX = 268_435_455


@v5("3.8.3-3")
def test_no_local(net: Any) -> None:
    """With no local the client does not get its own messages, but those of others."""
    client, other, topic = net.client(V5), net.client(V5), net.topic()
    client.subscribe((topic, sub_options(1, no_local=True)))
    client.publish(topic, b"own", qos=1)
    net.quiet(client, client)
    other.publish(topic, b"other", qos=1)
    client.message(b"other")


@v5("3.8.3-3")
def test_no_local_follows_the_client_id(net: Any) -> None:
    """No Local goes by the client id, also after a reconnect of the session, on whatever node."""
    name, topic = net.new_id(), net.topic()
    client = net.session(V5, name)
    client.subscribe((topic, sub_options(1, no_local=True)))
    client.disconnect()
    client = net.session(V5, name)
    client.publish(topic, b"own", qos=1)
    net.quiet(client, client)


@v5("3.8.3-3")
def test_local_by_default(net: Any) -> None:
    """Without the option a client gets its own messages."""
    client, topic = net.client(V5), net.topic()
    client.subscribe(topic, qos=1)
    client.publish(topic, b"own", qos=1)
    client.message(b"own")


@v5("3.8.3-3")
def test_no_local_and_another_subscription(net: Any) -> None:
    """An overlapping subscription without no local still gets the own message."""
    client = net.client(V5)
    client.subscribe((net.topic("a"), sub_options(1, no_local=True)))
    client.subscribe((net.topic("+"), sub_options(1)))
    client.publish(net.topic("a"), b"own", qos=1)
    client.message(b"own")
    net.quiet(client, client)


@v5("3.3.1-12", "3.3.1-13")
@pytest.mark.parametrize("keep", [False, True])
@pytest.mark.parametrize("retain", [False, True])
def test_retain_as_published(net: Any, keep: bool, retain: bool) -> None:
    """The flag of a live message is kept with the option and cleared without it."""
    client, publisher, topic = net.client(V5), net.client(V5), net.topic()
    client.subscribe((topic, sub_options(1, retain_as_published=keep)))
    publisher.publish(topic, b"x", qos=1, retain=retain)
    client.message(b"x", retain=retain and keep)


@v5("3.3.1-9")
def test_retain_handling_0(net: Any) -> None:
    """Retained messages come with every subscribe, also of a filter that already exists."""
    client, topic = net.client(V5), net.topic()
    net.retain(topic, b"kept")
    for _ in range(3):
        client.subscribe((topic, sub_options(1, retain_handling=0)))
        client.message(b"kept", retain=True)


@v5("3.3.1-10")
def test_retain_handling_1(net: Any) -> None:
    """Retained messages come only if the subscription is new, and again after it was removed."""
    client, topic = net.client(V5), net.topic()
    net.retain(topic, b"kept")
    for _ in range(2):
        client.subscribe((topic, sub_options(1, retain_handling=1)))
        client.message(b"kept", retain=True)
        client.subscribe((topic, sub_options(1, retain_handling=1)))
        client.subscribe((topic, sub_options(0, retain_handling=1)))
        net.quiet(client, client)
        client.unsubscribe(topic)


@v5("3.3.1-10")
def test_retain_handling_1_in_a_resumed_session(net: Any) -> None:
    """A subscription from the stored session is not new."""
    name, topic = net.new_id(), net.topic()
    net.retain(topic, b"kept")
    client = net.session(V5, name)
    client.subscribe((topic, sub_options(1, retain_handling=1)))
    client.message(b"kept")
    client.disconnect()
    client = net.session(V5, name)
    client.subscribe((topic, sub_options(1, retain_handling=1)))
    net.quiet(client, client)


@v5("3.3.1-11")
def test_retain_handling_2(net: Any) -> None:
    """Retained messages do not come; live ones do."""
    client, topic = net.client(V5), net.topic()
    net.retain(topic, b"kept")
    client.subscribe((topic, sub_options(1, retain_handling=2)))
    net.quiet(client, client)
    client.publish(topic, b"live", qos=1)
    client.message(b"live")


@v5("3.3.4-3", "3.3.4-4")
@pytest.mark.parametrize("number", [1, 127, 128, 16384, 2_097_152, IDENTIFIER_MAX])
def test_subscription_identifier(net: Any, number: int) -> None:
    """The identifier of the subscription comes with each message."""
    client, publisher, topic = net.client(V5), net.client(V5), net.topic()
    client.subscribe(topic, qos=1, props={"subscription_identifier": number})
    for _ in range(2):
        publisher.publish(topic, b"x", qos=1)
        assert client.message().props["subscription_identifier"] == [number]


@v5("3.3.4-3")
def test_identifiers_with_retained_messages(net: Any) -> None:
    """A retained message carries the identifier of the new subscription."""
    client, topic = net.client(V5), net.topic()
    net.retain(topic, b"kept")
    client.subscribe(topic, qos=1, props={"subscription_identifier": 42})
    assert client.message(b"kept").props["subscription_identifier"] == [42]


@v5("3.3.4-3", "3.3.4-4", "3.3.4-5")
def test_identifiers_of_overlapping_subscriptions(net: Any) -> None:
    """All identifiers that match, in one copy or over several, and none that does not."""
    client, publisher, marker = net.client(V5), net.client(V5), net.topic("end")
    for number, wanted in enumerate(("o/#", "o/+", "o/x", "o/y"), 1):
        client.subscribe(net.topic(wanted), qos=1, props={"subscription_identifier": number})
    client.subscribe(net.topic("+/x"), qos=1)
    client.subscribe(marker, qos=1)
    publisher.publish(net.topic("o/x"), b"x", qos=1)
    publisher.publish(marker, b"", qos=1)
    found: list[list[int]] = []
    while (got := client.message()).topic != marker:
        found.append(sorted(got.props.get("subscription_identifier", [])))
    assert sorted(found) in ([[1, 2, 3]], [[], [1], [2], [3]])


@v5("3.8.4-3", "3.3.4-3")
def test_identifier_is_replaced(net: Any) -> None:
    """Subscribing again replaces the identifier, or removes it."""
    client, publisher, topic = net.client(V5), net.client(V5), net.topic()
    for props, expected in (({"subscription_identifier": 7}, [7]), ({"subscription_identifier": 8}, [8]), (None, None)):
        client.subscribe(topic, qos=1, props=props)
        publisher.publish(topic, b"x", qos=1)
        assert client.message().props.get("subscription_identifier") == expected


@v5("3.3.4-3", "3.1.2-5")
def test_identifier_lives_in_the_session(net: Any) -> None:
    """Messages stored while the client was away carry the identifier."""
    name, publisher, topic = net.new_id(), net.client(V5), net.topic()
    client = net.session(V5, name)
    client.subscribe(topic, qos=1, props={"subscription_identifier": 9})
    client.disconnect()
    publisher.publish(topic, b"away", qos=1)
    client = net.session(V5, name)
    assert client.message(b"away").props["subscription_identifier"] == [9]


@v5("3.3.4-3")
def test_identifier_is_the_subscribers_own(net: Any) -> None:
    """One subscriber's identifier does not reach another."""
    first, second, topic = net.client(V5), net.client(V5), net.topic()
    first.subscribe(topic, props={"subscription_identifier": 3})
    second.subscribe(topic)
    first.publish(topic, b"x", qos=1)
    assert first.message().props["subscription_identifier"] == [3]
    assert "subscription_identifier" not in second.message().props


@v5("3.3.1-12", "3.3.1-9")
@pytest.mark.parametrize("keep", [False, True])
def test_retained_message_of_a_new_subscription_has_the_flag(net: Any, keep: bool) -> None:
    """Retain as published is about live messages; messages that come at subscribing are marked as retained."""
    client, topic = net.client(V5), net.topic()
    net.retain(topic, b"kept")
    client.subscribe((topic, sub_options(1, retain_as_published=keep)))
    client.message(b"kept", retain=True)


@v5("3.3.1-12")
def test_retain_as_published_from_311(net: Any) -> None:
    """The publisher's version makes no difference."""
    client, publisher, topic = net.client(V5), net.client(V311), net.topic()
    client.subscribe((topic, sub_options(1, retain_as_published=True)))
    publisher.publish(topic, b"x", qos=1, retain=True)
    client.message(b"x", retain=True)


@v5("3.8.4-6")
def test_options_per_filter(net: Any) -> None:
    """Each filter of one SUBSCRIBE has its own options."""
    client, publisher = net.client(V5), net.client(V5)
    client.subscribe((net.topic("a"), sub_options(2, retain_as_published=True)), (net.topic("b"), sub_options(0)))
    for rest in "ab":
        publisher.publish(net.topic(rest), b"x", qos=2, retain=True)
    got = {one.topic: (one.qos, one.retain) for one in (client.message(), client.message())}
    assert got == {net.topic("a"): (2, True), net.topic("b"): (0, False)}
    client.nothing(T.PUBLISH)
