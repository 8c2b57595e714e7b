"""Shared subscriptions of MQTT 5.0: a group of clients divides the messages between its members."""

from __future__ import annotations

import time
from collections import Counter
from typing import Any

import pytest

import mqttwire as w
from client import Client, ClientError
from marks import acked_qos, v5
from mqttwire import V5, T

BAD_SHARES = ["$share/", "$share/g", "$share/g/", "$share//t", "$share/a+b/t", "$share/a#/t", "$share/+/t"]


def _members(net: Any, count: int, rest: str = "t", qos: int = 1, group: str = "g") -> list[Client]:
    """Clients of one group."""
    members = [net.client(V5) for _ in range(count)]
    for member in members:
        member.subscribe(f"$share/{group}/{net.topic(rest)}", qos=qos)
    return members


def _collect(clients: list[Client], count: int) -> list[list[bytes]]:
    """The messages that each client gets until together they have `count`, and after one more ping each."""
    got: list[list[bytes]] = [[] for _ in clients]
    deadline = time.monotonic() + clients[0].timeout
    while sum(map(len, got)) < count:
        if time.monotonic() > deadline:
            raise ClientError(f"only {sum(map(len, got))} of {count} messages came to the group")
        _sweep(clients, got)
    _sweep(clients, got)
    return got


def _sweep(clients: list[Client], got: list[list[bytes]]) -> None:
    for client, mine in zip(clients, got, strict=True):
        client.ping()
        while any(one.type == T.PUBLISH for one in client.inbox):
            mine.append(client.message().payload)


@v5("4.8.2-1", "4.8.2-2", "4.5.0-1")
@pytest.mark.parametrize("qos", [0, 1, 2])
@pytest.mark.parametrize("count", [1, 2, 3])
def test_each_message_to_one_member(net: Any, qos: int, count: int) -> None:
    """Every message comes to exactly one member, on whatever node the members are."""
    members, publisher = _members(net, count, qos=2), net.client(V5)
    for number in range(20):
        publisher.publish(net.topic(), str(number), qos=qos)
    got = Counter(payload for mine in _collect(members, 20) for payload in mine)
    assert got == Counter(str(number).encode() for number in range(20))


@v5("4.8.2-1")
def test_groups_are_independent(net: Any) -> None:
    """Two groups and an ordinary subscriber each get everything."""
    first, second = _members(net, 2, group="a"), _members(net, 2, group="b")
    plain, publisher = net.client(V5), net.client(V5)
    plain.subscribe(net.topic(), qos=1)
    expected = sorted(str(number).encode() for number in range(10))
    for number in range(10):
        publisher.publish(net.topic(), str(number), qos=1)
    for members in (first, second, [plain]):
        assert sorted(payload for mine in _collect(members, 10) for payload in mine) == expected


@v5("4.8.2-1")
def test_same_group_name_other_filter(net: Any) -> None:
    """A group is its name together with its filter."""
    first, second, publisher = _members(net, 1, "x"), _members(net, 1, "+"), net.client(V5)
    publisher.publish(net.topic("x"), b"m", qos=1)
    first[0].message(b"m")
    second[0].message(b"m")


@v5("4.8.2-1", "4.8.2-2")
def test_shared_and_plain_in_one_client(net: Any) -> None:
    """A client may have both; it gets the message for each of them."""
    client, publisher = _members(net, 1)[0], net.client(V5)
    client.subscribe(net.topic(), qos=1)
    publisher.publish(net.topic(), b"m", qos=1)
    client.message(b"m")
    client.message(b"m")
    net.quiet(client, publisher)


@v5("4.8.2-2")
def test_shared_wildcards(net: Any) -> None:
    """The filter behind the group name may have wildcards, as any other."""
    members, publisher = _members(net, 2, "w/+/#"), net.client(V5)
    for rest in ("w/a", "w/b/c", "w", "v/a"):
        publisher.publish(net.topic(rest), rest, qos=1)
    got = sorted(payload for mine in _collect(members, 2) for payload in mine)
    assert got == [b"w/a", b"w/b/c"]


@v5("4.8.2-3", "3.8.4-8")
@pytest.mark.parametrize(("granted", "sent"), [(0, 2), (1, 2), (2, 1)])
def test_shared_qos(net: Any, granted: int, sent: int) -> None:
    """The granted QoS of the member holds."""
    member, publisher = _members(net, 1, qos=granted)[0], net.client(V5)
    publisher.publish(net.topic(), b"m", qos=sent)
    member.message(b"m", qos=min(granted, sent))


@v5("3.3.4-3")
def test_shared_identifier(net: Any) -> None:
    """A shared subscription may have an identifier."""
    member, publisher = net.client(V5), net.client(V5)
    member.subscribe(f"$share/g/{net.topic()}", qos=1, props={"subscription_identifier": 6})
    publisher.publish(net.topic(), b"m", qos=1)
    assert member.message(b"m").props["subscription_identifier"] == [6]


@v5("3.3.1-9", "4.8.2-1")
def test_shared_gets_no_retained(net: Any) -> None:
    """Retained messages are not sent for a shared subscription."""
    net.retain(net.topic(), b"kept")
    member = _members(net, 1)[0]
    net.quiet(member, member)


@v5("3.10.4-1", "3.10.4-2")
def test_shared_unsubscribe(net: Any) -> None:
    """A member that unsubscribes gets nothing more; the rest gets all."""
    members, publisher = _members(net, 2), net.client(V5)
    assert members[0].unsubscribe(net.topic(), f"$share/h/{net.topic()}").reasons == [0x11, 0x11]
    assert members[0].unsubscribe(f"$share/g/{net.topic()}").reasons == [0]
    for number in range(8):
        publisher.publish(net.topic(), str(number), qos=1)
    assert [len(mine) for mine in _collect(members, 8)] == [0, 8]


@v5("4.8.2-1")
def test_member_that_leaves(net: Any) -> None:
    """After a member has disconnected the others get everything."""
    members, publisher = _members(net, 3), net.client(V5)
    members[1].disconnect()
    rest = [members[0], members[2]]
    for number in range(12):
        publisher.publish(net.topic(), str(number), qos=1)
    got = sorted(int(payload) for mine in _collect(rest, 12) for payload in mine)
    assert got == list(range(12))


@v5("4.8.2-1", "3.8.4-3")
def test_subscribing_again_does_not_double(net: Any) -> None:
    """The same shared filter again is still one membership."""
    member, publisher = _members(net, 1)[0], net.client(V5)
    member.subscribe(f"$share/g/{net.topic()}", qos=1)
    publisher.publish(net.topic(), b"m", qos=1)
    member.message(b"m")
    net.quiet(member, publisher)


@acked_qos
@v5("4.8.2-6")
def test_refused_message_goes_to_nobody_else(net: Any, qos: int) -> None:
    """When the chosen member refuses a message with an error, it is not offered to another."""
    members, publisher = _members(net, 2, qos=qos), net.client(V5)
    publisher.publish(net.topic(), b"refused", qos=qos)
    chosen, other = _who_got(members)
    got = chosen.expect(T.PUBLISH)
    chosen.ack(T.PUBACK if qos == 1 else T.PUBREC, got.pid, 0x83)
    net.quiet(other, publisher)
    net.quiet(chosen, publisher)


def _who_got(members: list[Client]) -> tuple[Client, Client]:
    """The one of two members that has a PUBLISH waiting, and the other."""
    deadline = time.monotonic() + members[0].timeout
    while time.monotonic() < deadline:
        for index, member in enumerate(members):
            member.ping()
            if any(one.type == T.PUBLISH for one in member.inbox):
                return member, members[1 - index]
    raise ClientError("no member got the message")


@v5("4.8.2-4", "4.8.2-5")
def test_qos2_in_progress_stays_with_its_member(net: Any) -> None:
    """A QoS 2 delivery that has begun is finished with the same member after its reconnect, and with no other."""
    names, publisher = [net.new_id(), net.new_id()], net.client(V5)
    members = [net.session(V5, name) for name in names]
    for member in members:
        member.subscribe(f"$share/g/{net.topic()}", qos=2)
    publisher.publish(net.topic(), b"two", qos=2)
    chosen, other = _who_got(members)
    pid = chosen.expect(T.PUBLISH).pid
    chosen.ack(T.PUBREC, pid)
    chosen.expect(T.PUBREL, pid=pid)
    chosen.close()
    net.quiet(other, publisher)
    back = net.session(V5, names[members.index(chosen)])
    assert back.connack.session_present
    back.expect(T.PUBREL, pid=pid)
    back.ack(T.PUBCOMP, pid)
    net.quiet(other, publisher)


@v5("4.8.2-5")
def test_qos2_of_an_ended_session_goes_to_nobody_else(net: Any) -> None:
    """If the member's session ends in the middle of a QoS 2 delivery, no other member gets the message."""
    members, publisher = _members(net, 2, qos=2), net.client(V5)
    publisher.publish(net.topic(), b"two", qos=2)
    chosen, other = _who_got(members)
    chosen.ack(T.PUBREC, chosen.expect(T.PUBLISH).pid)
    chosen.expect(T.PUBREL)
    chosen.disconnect()
    net.quiet(other, publisher)


@v5("4.8.2-1", "4.8.2-2")
@pytest.mark.parametrize("wanted", BAD_SHARES)
def test_bad_share_names(net: Any, wanted: str) -> None:
    """Without a name, without a filter or with a wildcard in the name: not granted as a shared subscription."""
    client, publisher = net.client(V5), net.client(V5)
    client.send(w.subscribe(V5, 3, [(wanted, 1)]))
    got = client.read_until(T.SUBACK)
    if got is None:
        assert {one.reason for one in client.inbox if one.type == T.DISCONNECT} <= {0x81, 0x82, 0x8F}
    else:
        assert got.reasons[0] >= 0x80
    publisher.ping()
