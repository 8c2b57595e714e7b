"""Sessions: the state that a broker keeps for a client that is away, and for how long."""

from __future__ import annotations

from typing import Any

import pytest

from marks import acked_qos, both, expects_reason, timed, v3, v5
from mqttwire import V5, V311, T

FOREVER = 0xFFFFFFFF


@both
@v3("3.2.2-2", "3.2.2-3", "3.1.2-4", "3.1.3-2")
@v5("3.2.2-3", "3.1.2-5", "3.1.2-6", "3.1.2-23", "3.1.3-2")
def test_session_present(net: Any, version: int) -> None:
    """The first CONNACK reports no session; the next ones do, after a DISCONNECT or a lost connection."""
    name = net.new_id()
    client = net.session(version, name)
    assert not client.connack.session_present
    client.disconnect()
    client = net.session(version, name)
    assert client.connack.session_present
    client.close()
    assert net.session(version, name).connack.session_present


@both
@v3("3.1.2-4")
@v5("3.1.2-5")
def test_subscriptions_survive(net: Any, version: int) -> None:
    """A resumed session still has its subscriptions, with their QoS."""
    name, publisher, topic = net.new_id(), net.client(version), net.topic()
    client = net.session(version, name)
    client.subscribe((net.topic("0"), 0), (net.topic("1"), 1), (net.topic("2"), 2))
    client.unsubscribe(net.topic("0"))
    client.disconnect()
    client = net.session(version, name)
    for rest in "012":
        publisher.publish(net.topic(rest), topic, qos=2)
    got = sorted((one.topic, one.qos) for one in (client.message(), client.message()))
    assert got == [(net.topic("1"), 1), (net.topic("2"), 2)]
    net.quiet(client, publisher)


@both
@acked_qos
@v3("3.1.2-5", "4.5.0-1")
@v5("4.5.0-1", "3.1.2-5", "3.1.2-23")
def test_messages_wait_for_the_client(net: Any, version: int, qos: int) -> None:
    """Messages of QoS 1 and 2 published while the client was away come in order, once, without DUP."""
    name, publisher, topic = net.new_id(), net.client(version), net.topic()
    client = net.session(version, name)
    client.subscribe(topic, qos=qos)
    client.disconnect()
    for number in range(12):
        publisher.publish(topic, str(number), qos=qos)
    client = net.session(version, name)
    for number in range(12):
        client.message(str(number), qos=qos, dup=False)
    net.quiet(client, publisher)
    client.disconnect()
    net.session(version, name).nothing()


@both
@v3("3.1.2-6", "3.2.2-1")
@v5("3.1.2-4", "3.2.2-2")
def test_clean_start_discards(net: Any, version: int) -> None:
    """A clean start throws away subscriptions and waiting messages."""
    name, publisher, topic = net.new_id(), net.client(version), net.topic()
    client = net.session(version, name)
    client.subscribe(topic, qos=1)
    client.disconnect()
    publisher.publish(topic, b"lost", qos=1)
    client = net.session(version, name, clean=True)
    assert not client.connack.session_present
    publisher.publish(topic, b"also lost", qos=1)
    net.quiet(client, publisher)


@both
@v3("3.1.2-6")
@v5("3.1.2-4", "4.1.0-2")
def test_clean_session_leaves_nothing(net: Any, version: int) -> None:
    """The state of a clean session is not there for a later one."""
    name, publisher, topic = net.new_id(), net.client(version), net.topic()
    client = net.client(version, name)
    client.subscribe(topic, qos=1)
    client.disconnect()
    publisher.publish(topic, b"lost", qos=1)
    client = net.session(version, name)
    assert not client.connack.session_present
    net.quiet(client, publisher)


@both
@v3("3.1.2-6", "3.1.4-3")
@v5("3.1.2-4", "3.1.4-4")
def test_clean_start_discards_a_live_session(net: Any, version: int) -> None:
    """The same when the old connection is still open."""
    name, publisher, topic = net.new_id(), net.client(version), net.topic()
    first = net.session(version, name)
    first.subscribe(topic, qos=1)
    second = net.session(version, name, clean=True)
    assert not second.connack.session_present
    first.expect_closed(0x8E, patient=True)
    publisher.publish(topic, b"lost", qos=1)
    net.quiet(second, publisher)


@both
@v3("3.1.2-4", "4.1.0-1")
@v5("3.1.2-5", "4.1.0-1")
def test_takeover_keeps_the_session(net: Any, version: int) -> None:
    """Taking over an open connection resumes its session, unacknowledged messages included."""
    name, publisher, topic = net.new_id(), net.client(version), net.topic()
    first = net.session(version, name)
    first.subscribe(topic, qos=1)
    publisher.publish(topic, b"open", qos=1)
    pid = first.expect(T.PUBLISH).pid
    second = net.session(version, name)
    assert second.connack.session_present
    second.message(b"open", pid=pid, dup=True)
    publisher.publish(topic, b"next", qos=1)
    second.message(b"next", dup=False)


@both
@v3("3.1.3-2")
@v5("3.1.3-2")
def test_sessions_do_not_mix(net: Any, version: int) -> None:
    """Each client id has its own subscriptions and messages."""
    names, publisher = [net.new_id() for _ in range(3)], net.client(version)
    for name in names:
        client = net.session(version, name)
        client.subscribe(net.topic(name), qos=1)
        client.disconnect()
    for name in names:
        publisher.publish(net.topic(name), name, qos=1)
    for name in reversed(names):
        client = net.session(version, name)
        client.message(name)
        client.nothing()


@v3("3.1.2-4", "3.1.2-6")
def test_clean_session_0_after_1(net: Any) -> None:
    """In 3.1.1 the flag of the last connection decides whether anything is kept."""
    name = net.new_id()
    net.session(V311, name).disconnect()
    net.session(V311, name, clean=True).disconnect()
    assert not net.session(V311, name).connack.session_present


@v5("3.1.2-23", "4.1.0-2", "3.2.2-3")
def test_expiry_zero_ends_with_the_connection(net: Any) -> None:
    """Without expiry interval, or with 0, nothing is kept."""
    for props in ({}, {"session_expiry_interval": 0}):
        name = net.new_id()
        client = net.client(V5, name, clean=False, props=props)
        client.subscribe(net.topic(), qos=1)
        client.disconnect()
        assert not net.session(V5, name).connack.session_present


@v5("3.1.2-23", "3.1.2-4")
def test_clean_start_is_not_about_the_end(net: Any) -> None:
    """In 5.0 a session begun with a clean start is kept as its expiry says."""
    name = net.new_id()
    net.session(V5, name, clean=True).disconnect()
    assert net.session(V5, name).connack.session_present


@v5("3.1.2-23")
@pytest.mark.parametrize("expiry", [1000, FOREVER])
def test_long_expiry(net: Any, expiry: int) -> None:
    """Long intervals, and the one that stands for no end."""
    name = net.new_id()
    net.session(V5, name, expiry=expiry).disconnect()
    assert net.session(V5, name, expiry=expiry).connack.session_present


@v5("3.1.2-23", "4.1.0-2")
def test_disconnect_ends_the_session(net: Any) -> None:
    """DISCONNECT with an expiry of 0 ends the session at once."""
    name = net.new_id()
    net.session(V5, name).disconnect(props={"session_expiry_interval": 0})
    assert not net.session(V5, name).connack.session_present


@v5("3.1.2-23")
def test_disconnect_may_not_begin_to_keep(net: Any) -> None:
    """A session that was to end with the connection cannot be kept by DISCONNECT: a protocol error."""
    name = net.new_id()
    client = net.client(V5, name)
    client.disconnect(props={"session_expiry_interval": 60})
    assert not net.session(V5, name).connack.session_present


@expects_reason
@v5("4.13.1-1")
def test_disconnect_may_not_begin_to_keep_says_why(net: Any) -> None:
    """The broker answers that protocol error with 0x82."""
    client = net.client(V5)
    client.send(b"\xe0\x07\x00\x05\x11\x00\x00\x00\x3c")
    client.expect_closed(0x82, must_say=True)


@timed
@v5("4.1.0-2", "3.1.2-23")
def test_session_expires(net: Any) -> None:
    """When the interval has passed since the connection ended, the session is gone."""
    name, publisher, topic = net.new_id(), net.client(V5), net.topic()
    client = net.session(V5, name, expiry=1)
    client.subscribe(topic, qos=1)
    client.disconnect()
    publisher.publish(topic, b"lost", qos=1)
    publisher.rest(4)
    client = net.session(V5, name)
    assert not client.connack.session_present
    net.quiet(client, publisher)


@timed
@v5("4.1.0-2", "3.1.2-23")
def test_disconnect_changes_the_expiry(net: Any) -> None:
    """DISCONNECT may shorten the interval."""
    name, other = net.new_id(), net.client(V5)
    net.session(V5, name, expiry=300).disconnect(props={"session_expiry_interval": 1})
    other.rest(4)
    assert not net.session(V5, name).connack.session_present


@timed
@v5("4.1.0-1", "4.1.0-2")
def test_session_lasts_while_connected(net: Any) -> None:
    """The interval runs only while the client is away: an open session does not end."""
    name, publisher, topic = net.new_id(), net.client(V5), net.topic()
    client = net.session(V5, name, expiry=1)
    client.subscribe(topic, qos=1)
    client.rest(3)
    publisher.publish(topic, b"still", qos=1)
    client.message(b"still")
    client.disconnect()
    assert net.session(V5, name, expiry=1).connack.session_present


@timed
@v3("3.1.2-4", "3.1.2-5")
def test_session_without_clean_lasts(net: Any) -> None:
    """A stored session of 3.1.1 does not go away by itself."""
    name, publisher, topic = net.new_id(), net.client(V311), net.topic()
    client = net.session(V311, name)
    client.subscribe(topic, qos=1)
    client.disconnect()
    publisher.rest(3)
    publisher.publish(topic, b"kept", qos=1)
    client = net.session(V311, name)
    assert client.connack.session_present
    client.message(b"kept")


@both
@v3("4.1.0-2", "4.1.0-1")
@v5("4.1.0-1")
def test_state_while_connected(net: Any, version: int) -> None:
    """Even a session that is not kept holds its state for as long as the connection lasts."""
    client, publisher, topic = net.client(version), net.client(version), net.topic()
    client.subscribe(topic, qos=2)
    publisher.publish(topic, b"x", qos=2)
    got = client.expect(T.PUBLISH)
    for _ in range(5):
        client.ping()
    client.finish(got)
    publisher.start_publish(topic, b"y", qos=2, pid=500)
    publisher.expect(T.PUBREC, pid=500)
    publisher.ping()
    publisher.release(500)
    client.message(b"y")


@v5("3.1.4-3")
def test_version_may_change(net: Any) -> None:
    """A 5.0 client that comes back with 3.1.1 is served, as the same client."""
    name = net.new_id()
    first = net.client(V5, name)
    second = net.client(V311, name)
    first.expect_closed(0x8E, patient=True)
    second.ping()
