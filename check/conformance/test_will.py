"""Will messages: when they are published, and when not."""

from __future__ import annotations

import time
from typing import Any

import pytest

import mqttwire as w
from marks import both, each_qos, timed, v3, v5
from mqttwire import V5, V311, T


def _watch(net: Any, version: int, name: str = "will") -> tuple[Any, str]:
    """A subscriber to a will topic of this test, and the topic."""
    watcher, topic = net.client(version), net.topic(name)
    watcher.subscribe(topic, qos=2)
    return watcher, topic


@both
@each_qos
@v3("3.1.2-8", "3.1.2-14", "3.1.2-16", "3.1.2-9")
@v5("3.1.2-7", "3.1.2-8", "3.1.2-12", "3.1.2-14", "3.1.2-9")
def test_will_on_a_lost_connection(net: Any, version: int, qos: int) -> None:
    """A connection that breaks brings the will once, with its QoS, not retained."""
    watcher, topic = _watch(net, version)
    net.client(version, will=w.Will(topic, b"gone", qos)).close()
    watcher.message(b"gone", topic=topic, qos=qos, retain=False)
    net.quiet(watcher, watcher)
    late = net.client(version)
    late.subscribe(topic)
    net.quiet(late, watcher)


@both
@v3("3.14.4-3", "3.1.2-10")
@v5("3.14.4-3", "3.1.2-10")
def test_no_will_after_disconnect(net: Any, version: int) -> None:
    """DISCONNECT deletes the will; the fence is another client's will of the same topic."""
    watcher, topic = _watch(net, version)
    net.client(version, will=w.Will(topic, b"never", 1)).disconnect()
    net.client(version, will=w.Will(topic, b"fence", 1)).close()
    watcher.message(b"fence")
    net.quiet(watcher, watcher)


@timed
@v5("3.1.2-8")
@pytest.mark.parametrize("reason", [0x04, 0x80, 0x82, 0x97])
def test_will_after_disconnect_with_another_reason(net: Any, reason: int) -> None:
    """Only the normal DISCONNECT deletes the will; 0x04 asks for it, and errors do not stop it."""
    watcher, topic = _watch(net, V5)
    net.client(V5, will=w.Will(topic, b"wanted", 1)).disconnect(reason)
    watcher.message(b"wanted")
    net.quiet(watcher, watcher)


@both
@v3("3.1.2-8", "4.8.0-1")
@v5("3.1.2-8", "4.13.1-1")
def test_will_after_a_protocol_error(net: Any, version: int) -> None:
    """When the broker closes because of wrong bytes, the will is published."""
    watcher, topic = _watch(net, version)
    client = net.client(version, will=w.Will(topic, b"error", 1))
    client.send(b"\x36\x05\x00\x01t\x00\x01")
    client.expect_closed()
    watcher.message(b"error")


@both
@v3("3.1.2-8", "3.1.4-2")
@v5("3.1.2-8", "3.1.4-3")
def test_will_on_takeover(net: Any, version: int) -> None:
    """A second connection with the same id ends the first without DISCONNECT, so its will is published."""
    watcher, topic = _watch(net, version)
    name = net.new_id()
    net.client(version, name, will=w.Will(topic, b"taken over", 1))
    second = net.client(version, name)
    watcher.message(b"taken over")
    second.ping()


@both
@each_qos
@v3("3.1.2-17")
@v5("3.1.2-15")
def test_retained_will(net: Any, version: int, qos: int) -> None:
    """A will with the retain flag is stored; subscribers that are there get it without the flag."""
    watcher, topic = _watch(net, version)
    net.client(version, will=w.Will(topic, b"kept", qos, retain=True)).close()
    watcher.message(b"kept", retain=False)
    net.settle(topic, b"kept")
    late = net.client(version)
    late.subscribe(topic, qos=2)
    late.message(b"kept", retain=True, qos=qos)


@both
@v3("3.1.2-16")
@v5("3.1.2-14")
def test_will_leaves_retained_alone(net: Any, version: int) -> None:
    """A will without the retain flag does not touch the retained message of its topic."""
    watcher, topic = _watch(net, version)
    net.retain(topic, b"old", 1, version)
    watcher.message(b"old", retain=False)
    net.client(version, will=w.Will(topic, b"new", 1)).close()
    watcher.message(b"new")
    late = net.client(version)
    late.subscribe(topic)
    late.message(b"old", retain=True)


@both
@v3("3.1.2-10")
@v5("3.1.2-10")
def test_will_is_published_once(net: Any, version: int) -> None:
    """A will that has been published is gone from the session."""
    watcher, topic = _watch(net, version)
    name = net.new_id()
    net.session(version, name, will=w.Will(topic, b"one", 1)).close()
    watcher.message(b"one")
    net.session(version, name).close()
    net.client(version, will=w.Will(topic, b"fence", 1)).close()
    watcher.message(b"fence")
    net.quiet(watcher, watcher)


@both
@v3("3.1.2-12", "3.1.2-8")
@v5("3.1.2-7", "3.1.2-10")
def test_each_connection_has_its_own_will(net: Any, version: int) -> None:
    """A new connection of the session brings its own will or none."""
    watcher, topic = _watch(net, version)
    name = net.new_id()
    net.session(version, name, will=w.Will(topic, b"first", 1)).disconnect()
    net.session(version, name, will=w.Will(topic, b"second", 1)).close()
    watcher.message(b"second")
    net.quiet(watcher, watcher)


@both
@v3("3.1.2-8")
@v5("3.1.2-7")
@pytest.mark.parametrize("payload", [b"", b"\x00\xff\xfe" * 20, b"x" * 20000], ids=["empty", "binary", "long"])
def test_will_payload(net: Any, version: int, payload: bytes) -> None:
    """Any bytes will do as a payload, also none."""
    watcher, topic = _watch(net, version)
    net.client(version, will=w.Will(topic, payload, 1)).close()
    watcher.message(payload)


@both
@v3("3.1.2-8")
@v5("3.1.2-8")
def test_will_reaches_stored_sessions(net: Any, version: int) -> None:
    """A subscriber that is away gets the will like any other message."""
    name, topic = net.new_id(), net.topic()
    client = net.session(version, name)
    client.subscribe(topic, qos=1)
    client.disconnect()
    watcher = net.client(version)
    watcher.subscribe(topic, qos=1)
    net.client(version, will=w.Will(topic, b"for later", 1)).close()
    watcher.message(b"for later")
    net.session(version, name).message(b"for later")


@v5("3.3.2-4", "3.3.2-15", "3.3.2-16", "3.3.2-17", "3.3.2-20", "3.1.3-10")
def test_will_properties(net: Any) -> None:
    """The properties of the will are those of the message; user properties keep their order."""
    props = {
        "payload_format_indicator": 1, "content_type": "text/plain", "response_topic": "back/to",
        "correlation_data": b"\x01\x02", "user_property": [("z", "1"), ("a", "2"), ("z", "3"), ("z", "1")],
    }
    watcher, topic = _watch(net, V5)
    net.client(V5, will=w.Will(topic, b"text", 1, props=props)).close()
    assert watcher.message(b"text").props == props


@v5("3.3.2-6")
def test_will_expiry(net: Any) -> None:
    """The will's message expiry comes with the message."""
    watcher, topic = _watch(net, V5)
    net.client(V5, will=w.Will(topic, b"short", 1, props={"message_expiry_interval": 100})).close()
    assert 95 <= watcher.message(b"short").props["message_expiry_interval"] <= 100


@both
@timed
@v3("3.1.2-24", "3.1.2-8")
@v5("3.1.2-22", "3.1.2-8")
def test_will_after_keep_alive(net: Any, version: int) -> None:
    """A client that falls silent counts as lost: its will is published."""
    watcher, topic = _watch(net, version)
    client = net.client(version, keepalive=1, will=w.Will(topic, b"silent", 1))
    if client.connack.props.get("server_keep_alive", 1) > 4:
        pytest.skip("the broker sets a longer keep alive")
    watcher.message(b"silent", timeout=12)


@timed
@v5("3.1.2-8")
def test_will_delay(net: Any) -> None:
    """The will waits for its delay, if the session lasts that long."""
    watcher, topic = _watch(net, V5)
    props = {"session_expiry_interval": 60}
    client = net.client(V5, props=props, will=w.Will(topic, b"late", 1, props={"will_delay_interval": 2}))
    began = time.monotonic()
    client.close()
    watcher.message(b"late", timeout=12)
    assert time.monotonic() - began >= 1.8


@timed
@v5("3.1.3-9", "3.1.2-8")
def test_will_delay_and_reconnect(net: Any) -> None:
    """A client that is back within the delay has no will published."""
    watcher, topic = _watch(net, V5)
    name = net.new_id()
    net.session(V5, name, will=w.Will(topic, b"never", 1, props={"will_delay_interval": 2})).close()
    client = net.session(V5, name)
    watcher.rest(4)
    net.quiet(watcher, client)


@timed
@v5("3.1.2-8", "4.1.0-2")
def test_will_at_session_end(net: Any) -> None:
    """When the session ends before the delay has passed, the will is published then."""
    watcher, topic = _watch(net, V5)
    props = {"session_expiry_interval": 1}
    client = net.client(V5, props=props, will=w.Will(topic, b"ended", 1, props={"will_delay_interval": 300}))
    client.close()
    watcher.message(b"ended", timeout=12)


@timed
@v5("3.1.2-8")
def test_will_delay_without_session(net: Any) -> None:
    """Without a session to keep, the session ends with the connection, and the delay does not count."""
    watcher, topic = _watch(net, V5)
    net.client(V5, will=w.Will(topic, b"at once", 1, props={"will_delay_interval": 300})).close()
    watcher.message(b"at once")


@timed
@v5("3.1.2-8", "3.1.2-4")
def test_will_delay_and_clean_start(net: Any) -> None:
    """A clean start ends the old session, so its delayed will is published then."""
    watcher, topic = _watch(net, V5)
    name = net.new_id()
    net.session(V5, name, will=w.Will(topic, b"cut short", 1, props={"will_delay_interval": 300})).close()
    net.client(V5, name, clean=True)
    watcher.message(b"cut short")


@timed
@v5("3.1.3-9")
def test_will_delay_and_takeover(net: Any) -> None:
    """A takeover of the session within the delay cancels the will of the connection taken over."""
    watcher, topic = _watch(net, V5)
    name = net.new_id()
    net.session(V5, name, will=w.Will(topic, b"never", 1, props={"will_delay_interval": 2}))
    second = net.session(V5, name)
    watcher.rest(4)
    second.ping()
    net.quiet(watcher, second)


@pytest.mark.parametrize(("first", "second"), [(V311, V5), (V5, V311)], ids=["v311-to-v5", "v5-to-v311"])
@v3("3.1.2-8")
@v5("3.1.2-8")
def test_will_between_versions(net: Any, first: int, second: int) -> None:
    """The version of the subscriber makes no difference."""
    watcher, topic = _watch(net, second)
    net.client(first, will=w.Will(topic, b"across", 1)).close()
    watcher.message(b"across")
    watcher.nothing(T.PUBLISH)
