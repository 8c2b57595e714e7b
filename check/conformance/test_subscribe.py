"""SUBSCRIBE and UNSUBSCRIBE, topic filters and their matching."""

from __future__ import annotations

from typing import Any

import pytest

import mqttwire as w
from client import Client
from marks import acked_qos, both, v3, v5
from mqttwire import V5, V311, T

# (filter, topic, does it match); {} is a prefix of this test only
MATCHES = [
    ("{}/a", "{}/a", True),
    ("{}/a", "{}/b", False),
    ("{}/a", "{}/A", False),
    ("{}/a", "{}/a/", False),
    ("{}/a/", "{}/a", False),
    ("{}/a", "{}/a/b", False),
    ("/{}/a", "{}/a", False),
    ("/{}/a", "/{}/a", True),
    ("{}//a", "{}//a", True),
    ("{}//a", "{}/a", False),
    ("{}/a b c", "{}/a b c", True),
    ("{}/*", "{}/a", False),
    ("{}/a?", "{}/ab", False),
    ("{}/+", "{}/a", True),
    ("{}/+", "{}/", True),
    ("{}/+", "{}", False),
    ("{}/+", "{}/a/b", False),
    ("{}/+/b", "{}/a/b", True),
    ("{}/+/b", "{}//b", True),
    ("{}/+/b", "{}/a/c", False),
    ("{}/+/+", "{}/a/b", True),
    ("{}/+/+", "{}/a", False),
    ("{}/a/+", "{}/a", False),
    ("+/{}/a", "/{}/a", True),
    ("+/{}/a", "x/{}/a", True),
    ("{}/#", "{}", True),
    ("{}/#", "{}/", True),
    ("{}/#", "{}/a", True),
    ("{}/#", "{}/a/b/c/d", True),
    ("{}/a/#", "{}/b/a", False),
    ("{}/a/#", "{}/ab", False),
    ("{}/+/#", "{}/a", True),
    ("{}/+/#", "{}/a/b", True),
    ("{}/+/#", "{}", False),
    ("{}/+/b/#", "{}/a/b", True),
    ("{}/+/b/+", "{}/a/b/c", True),
    ("{}/ä", "{}/ä", True),
    ("{}/e\u0301", "{}/\u00e9", False),
    ("{}/\ufeffa", "{}/\ufeffa", True),
    ("{}/\ufeffa", "{}/a", False),
    ("{}/\U0001f41d", "{}/\U0001f41d", True),
    ("{}/$x", "{}/$x", True),
    ("{}/+", "{}/$x", True),
]

BAD_FILTERS = ["", "a#", "a/#/b", "#/a", "a/b#", "##", "a+", "+a", "a/+b", "a/b+/c", "++", "a/#+"]


def _row_name(wanted: str, topic: str) -> str:
    return f"{wanted}~{topic}".replace("{}", "p").encode("unicode_escape").decode()


@both
@pytest.mark.parametrize(("wanted", "topic", "match"), MATCHES, ids=[_row_name(row[0], row[1]) for row in MATCHES])
@v3("4.7.1-2", "4.7.1-3", "4.7.3-4", "1.5.3-3", "3.3.2-3", "4.7.1-1")
@v5("4.7.1-1", "4.7.1-2", "4.7.3-4", "1.5.4-3", "3.3.2-3", "4.7.0-1")
def test_matching(net: Any, version: int, wanted: str, topic: str, match: bool) -> None:
    """A filter gets exactly the topics that it covers, level by level and character by character."""
    subscriber, publisher = net.client(version), net.client(version)
    prefix = net.topic("m")
    subscriber.subscribe(wanted.replace("{}", prefix), qos=1)
    publisher.publish(topic.replace("{}", prefix), b"x", qos=1)
    if match:
        subscriber.message(b"x", topic=topic.replace("{}", prefix))
    net.quiet(subscriber, publisher)


@both
@pytest.mark.parametrize("wanted", BAD_FILTERS)
@v3("4.7.1-2", "4.7.1-3", "4.7.3-1")
@v5("4.7.1-1", "4.7.1-2", "4.7.3-1", "3.8.4-7")
def test_bad_filters_are_not_granted(net: Any, version: int, wanted: str) -> None:
    """A wildcard out of place, or no character at all: refused in the SUBACK, or the connection ends."""
    client = net.client(version)
    client.send(w.subscribe(version, 5, [(wanted, 0)]))
    got = client.read_until(T.SUBACK)
    if got is None:
        reasons = [one.reason for one in client.inbox if one.type == T.DISCONNECT]
        assert set(reasons) <= {0x81, 0x82, 0x8F}
        return
    assert got.pid == 5
    assert got.reasons in ([[0x80]] if version == V311 else [[0x8F], [0x80]])


@both
@pytest.mark.parametrize("wanted", ["#", "+", "+/#"])
@v3("4.7.2-1")
@v5("4.7.2-1")
def test_wildcards_do_not_match_dollar_topics(net: Any, version: int, wanted: str) -> None:
    """A filter that starts with a wildcard does not see topics that start with $, such as those of the broker."""
    subscriber = net.client(version)
    subscriber.subscribe(wanted)
    client = net.client(version)
    for topic in ("$ct", f"$ct/{net.name}", f"$SYS/{net.name}"):
        client.start_publish(topic, b"hidden")
    client.disconnect()
    publisher, marker = net.client(version), net.topic("marker")
    subscriber.subscribe(marker, qos=1)
    publisher.publish(marker, b"end", qos=1)
    while (got := subscriber.message()).topic != marker:
        assert not got.topic.startswith("$"), f"{wanted} matched {got.topic}"


@both
@v3("3.8.4-1", "3.8.4-2", "2.3.1-7", "3.8.4-5", "3.9.3-1", "3.8.4-4", "3.9.3-2")
@v5("3.8.4-1", "3.8.4-2", "2.2.1-6", "3.8.4-6", "3.9.3-1", "3.8.4-5", "3.9.3-2", "3.8.4-7")
@pytest.mark.parametrize("pid", [1, 256, 65535])
def test_suback(net: Any, version: int, pid: int) -> None:
    """One code per filter, in their order, under the identifier of the SUBSCRIBE."""
    client = net.client(version)
    filters = [(net.topic(str(number)), number % 3) for number in range(9)]
    client.send(w.subscribe(version, pid, filters))
    got = client.expect(T.SUBACK, pid=pid)
    assert len(got.reasons) == 9
    assert all(code <= qos for code, (_, qos) in zip(got.reasons, filters, strict=True))


@both
@v3("3.9.3-1", "3.8.4-4")
@v5("3.9.3-1", "3.8.4-5", "3.8.4-7")
def test_one_bad_filter_among_good_ones(net: Any, version: int) -> None:
    """If the broker refuses only the bad filter, the code stands at its place and the others work."""
    client, publisher = net.client(version), net.client(version)
    client.send(w.subscribe(version, 4, [(net.topic("a"), 1), ("x/#/y", 1), (net.topic("b"), 1)]))
    got = client.read_until(T.SUBACK)
    if got is None:
        return  # the whole packet was malformed for this broker, which is allowed
    assert [code >= 0x80 for code in got.reasons] == [False, True, False]
    publisher.publish(net.topic("b"), b"b", qos=1)
    client.message(b"b")


@both
@v3("3.8.4-4", "3.8.4-5")
@v5("3.8.4-5", "3.8.4-6")
def test_many_filters(net: Any, version: int) -> None:
    """A hundred filters in one packet are as good as a hundred packets."""
    client, publisher = net.client(version), net.client(version)
    names = [net.topic(f"n{number}") for number in range(100)]
    assert len(client.subscribe(*names, qos=1).reasons) == 100
    for name in names[::9]:
        publisher.publish(name, b"x", qos=1)
        client.message(b"x", topic=name)


@both
@v3("3.8.4-3")
@v5("3.8.4-3")
@pytest.mark.parametrize(("first", "second"), [(0, 2), (2, 0), (1, 1)])
def test_subscribing_again_replaces(net: Any, version: int, first: int, second: int) -> None:
    """The same filter again: the new QoS counts, and a message comes once."""
    client, publisher, topic = net.client(version), net.client(version), net.topic()
    client.subscribe(topic, qos=first)
    client.subscribe(topic, qos=second)
    publisher.publish(topic, b"x", qos=2)
    client.message(b"x", qos=second)
    net.quiet(client, publisher)


@both
@v3("3.8.4-3")
@v5("3.8.4-4", "3.8.4-3")
def test_no_loss_while_subscribing_again(net: Any, version: int) -> None:
    """Messages keep coming, each once, while the subscription is replaced again and again."""
    client, publisher, topic = net.client(version), net.client(version), net.topic()
    client.subscribe(topic, qos=1)
    for number in range(30):
        client.send(w.subscribe(version, 1000 + number, [(topic, 1)]))
        publisher.publish(topic, str(number), qos=1)
    got = [client.message().payload for _ in range(30)]
    assert got == [str(number).encode() for number in range(30)]
    for number in range(30):
        client.expect(T.SUBACK, pid=1000 + number)
    net.quiet(client, publisher)


def _copies(client: Client, marker: str) -> list[Any]:
    """Messages up to the one on `marker`."""
    got = []
    while (one := client.message()).topic != marker:
        got.append(one)
    return got


@both
@v3("3.3.5-1")
@v5("3.3.4-2")
@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 2, 0)])
def test_overlapping_subscriptions(net: Any, version: int, order: tuple[int, int, int]) -> None:
    """One copy, or one per subscription; the best of them has the highest QoS granted."""
    client, publisher = net.client(version), net.client(version)
    for wanted, granted in zip(("o/+", "o/#", "o/x"), order, strict=True):
        client.subscribe(net.topic(wanted), qos=granted)
    marker = net.topic("end")
    client.subscribe(marker, qos=2)
    publisher.publish(net.topic("o/x"), b"x", qos=2)
    publisher.publish(marker, b"", qos=2)
    qos = sorted(one.qos for one in _copies(client, marker))
    assert qos in ([2], [0, 1, 2])


@both
@v3("3.10.4-4", "3.10.4-5", "2.3.1-7", "3.10.4-2", "3.10.4-1")
@v5("3.10.4-4", "3.10.4-5", "2.2.1-6", "3.10.4-2", "3.10.4-1")
@pytest.mark.parametrize("pid", [1, 256, 65535])
def test_unsubscribe(net: Any, version: int, pid: int) -> None:
    """UNSUBACK with the same identifier; nothing more comes; a second time it is answered too."""
    client, publisher, topic = net.client(version), net.client(version), net.topic()
    client.subscribe(topic, qos=1)
    for expected in ([0x00], [0x11]):
        client.send(w.unsubscribe(version, pid, [topic]))
        got = client.expect(T.UNSUBACK, pid=pid)
        assert version == V311 or got.reasons == expected
    publisher.publish(topic, b"gone", qos=1)
    net.quiet(client, publisher)


@both
@v3("3.10.4-6", "3.10.4-4")
@v5("3.10.4-6", "3.11.3-1", "3.11.3-2")
def test_unsubscribe_many(net: Any, version: int) -> None:
    """Several filters in one packet; 5.0 tells for each whether there was such a subscription, in order."""
    client, publisher = net.client(version), net.client(version)
    names = [net.topic(str(number)) for number in range(6)]
    client.subscribe(*names[::2], qos=1)
    got = client.unsubscribe(*names)
    assert version == V311 or got.reasons == [0x00, 0x11] * 3
    for name in names:
        publisher.publish(name, b"x", qos=1)
    net.quiet(client, publisher)


@both
@v3("3.10.4-1")
@v5("3.10.4-1")
def test_unsubscribe_compares_characters(net: Any, version: int) -> None:
    """Only the very same filter is removed, not one that covers the same topics."""
    client, publisher = net.client(version), net.client(version)
    client.subscribe(net.topic("a/+"), qos=1)
    for other in ("a/b", "a/#", "A/+", "a/+/", "#"):
        client.unsubscribe(net.topic(other))
    publisher.publish(net.topic("a/b"), b"kept", qos=1)
    client.message(b"kept")
    client.unsubscribe(net.topic("a/+"))
    publisher.publish(net.topic("a/b"), b"gone", qos=1)
    net.quiet(client, publisher)


@both
@acked_qos
@v3("3.10.4-3")
@v5("3.10.4-3")
def test_unsubscribe_finishes_what_has_begun(net: Any, version: int, qos: int) -> None:
    """A message already sent is carried to the end of its handshake."""
    client, publisher, topic = net.client(version), net.client(version), net.topic()
    client.subscribe(topic, qos=qos)
    publisher.publish(topic, b"begun", qos=qos)
    got = client.expect(T.PUBLISH)
    client.unsubscribe(topic)
    client.finish(got)
    net.quiet(client, publisher)


@both
@acked_qos
@v3("3.10.4-3")
@v5("3.10.4-3")
def test_unsubscribe_keeps_begun_messages_over_a_reconnect(net: Any, version: int, qos: int) -> None:
    """A message sent but not acknowledged is sent again although the subscription is gone."""
    name, publisher, topic = net.new_id(), net.client(version), net.topic()
    client = net.session(version, name)
    client.subscribe(topic, qos=qos)
    publisher.publish(topic, b"begun", qos=qos)
    pid = client.expect(T.PUBLISH).pid
    client.unsubscribe(topic)
    client.close()
    net.session(version, name).message(b"begun", pid=pid, dup=True)


@both
@v3("4.7.3-3")
@v5("4.7.3-3")
def test_longest_topic(net: Any, version: int) -> None:
    """A topic of 65,535 bytes is served, or refused as such without harm."""
    client, publisher = net.client(version), net.client(version)
    topic = net.topic("l" * (65535 - len(net.topic(""))))
    client.send(w.subscribe(version, 2, [(topic, 1)]))
    got = client.read_until(T.SUBACK)
    if got is None or got.reasons[0] >= 0x80:
        return
    publisher.send(w.publish(version, topic, b"long", qos=1, pid=2))
    answer = publisher.read_until(T.PUBACK)
    if answer is not None and answer.reason < 0x80:
        client.message(b"long", topic=topic)


@both
@v3("3.8.3-2")
@v5("3.8.4-7")
def test_many_levels(net: Any, version: int) -> None:
    """Topics of a hundred levels work, with wildcards in any of them."""
    client, publisher = net.client(version), net.client(version)
    levels = [net.topic("deep"), *"x" * 96]
    wanted = [level if index % 2 == 0 else "+" for index, level in enumerate(levels)]
    client.subscribe("/".join(wanted), qos=1)
    publisher.publish("/".join(levels), b"deep", qos=1)
    client.message(b"deep")


@v5("3.8.4-7")
def test_announced_abilities_hold(net: Any) -> None:
    """Wildcard, shared and identified subscriptions work unless the CONNACK says they do not."""
    client = net.client(V5)
    able = client.connack.props
    wishes = [
        ("wildcard_subscription_available", net.topic("#"), None, 0xA2),
        ("shared_subscription_available", f"$share/g/{net.topic()}", None, 0x9E),
        ("subscription_identifier_available", net.topic(), {"subscription_identifier": 5}, 0xA1),
    ]
    for name, wanted, props, refused in wishes:
        if able.get(name, 1):
            assert client.try_subscribe(wanted, props=props).reasons == [0]
        else:
            other = net.client(V5)
            other.send(w.subscribe(V5, 1, [(wanted, 0)], props))
            got = other.read_until(T.SUBACK)
            assert got is None or got.reasons == [refused]
