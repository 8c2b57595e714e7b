"""PUBLISH and its acknowledgements, for the three levels of service."""

from __future__ import annotations

from typing import Any

import pytest

import mqttwire as w
from marks import acked_qos, both, timed, v3, v5
from mqttwire import V5, V311, T


@both
@pytest.mark.parametrize("sent", [0, 1, 2])
@pytest.mark.parametrize("granted", [0, 1, 2])
@v3("3.8.4-6", "3.3.4-1", "3.3.2-3", "4.3.1-1", "4.3.2-1", "4.3.3-1", "4.5.0-1", "2.3.1-5")
@v5("3.8.4-8", "3.3.4-1", "3.3.2-3", "4.3.1-1", "4.3.2-2", "4.3.3-2", "4.5.0-1", "2.2.1-2", "3.3.1-2")
def test_qos_is_the_smaller_one(net: Any, version: int, sent: int, granted: int) -> None:
    """A message comes with the smaller of its own and the granted QoS, once, not as a duplicate."""
    subscriber, publisher, topic = net.client(version), net.client(version), net.topic()
    subscriber.subscribe(topic, qos=granted)
    publisher.publish(topic, b"m", qos=sent)
    subscriber.message(b"m", topic=topic, qos=min(sent, granted), dup=False, retain=False)
    net.quiet(subscriber, publisher)


@pytest.mark.parametrize(("first", "second"), [(V311, V5), (V5, V311)], ids=["v311-to-v5", "v5-to-v311"])
@pytest.mark.parametrize("qos", [0, 1, 2])
@v3("3.3.4-1")
@v5("3.3.4-1")
def test_versions_meet(net: Any, first: int, second: int, qos: int) -> None:
    """Clients of both versions exchange messages; properties are left out for 3.1.1."""
    publisher, subscriber, topic = net.client(first), net.client(second), net.topic()
    subscriber.subscribe(topic, qos=2)
    props = {"content_type": "text", "user_property": [("k", "v")]} if first == V5 else None
    publisher.publish(topic, "across", qos=qos, props=props)
    subscriber.message(b"across", qos=qos)


@both
@v3("4.3.2-2", "2.3.1-6")
@v5("4.3.2-4", "2.2.1-5", "3.4.2-1")
@pytest.mark.parametrize("pid", [1, 255, 256, 32768, 65535])
def test_puback_has_the_same_id(net: Any, version: int, pid: int) -> None:
    """PUBACK carries the packet identifier of its PUBLISH."""
    client = net.client(version)
    client.start_publish(net.topic(), b"x", qos=1, pid=pid)
    assert client.expect(T.PUBACK, pid=pid).reason in (0, 0x10)


@both
@v3("4.3.3-2", "2.3.1-6")
@v5("4.3.3-8", "4.3.3-11", "2.2.1-5", "3.5.2-1", "3.7.2-1")
@pytest.mark.parametrize("pid", [1, 255, 256, 32768, 65535])
def test_qos2_ids(net: Any, version: int, pid: int) -> None:
    """PUBREC and PUBCOMP carry the packet identifier of the PUBLISH."""
    client = net.client(version)
    client.start_publish(net.topic(), b"x", qos=2, pid=pid)
    assert client.expect(T.PUBREC, pid=pid).reason in (0, 0x10)
    assert client.release(pid).reason == 0


@both
@v3("4.3.3-2")
@v5("4.3.3-10")
def test_qos2_duplicate_is_not_delivered_twice(net: Any, version: int) -> None:
    """The same PUBLISH again before PUBREL is acknowledged again and delivered once."""
    subscriber, publisher, topic = net.client(version), net.client(version), net.topic()
    subscriber.subscribe(topic, qos=2)
    for dup in (False, True):
        publisher.start_publish(topic, b"once", qos=2, pid=5, dup=dup)
        publisher.expect(T.PUBREC, pid=5)
    publisher.release(5)
    subscriber.message(b"once", dup=False)
    net.quiet(subscriber, publisher)


@both
@acked_qos
@v3("4.3.2-2", "4.3.3-2")
@v5("4.3.2-5", "4.3.3-12")
def test_id_is_free_after_the_handshake(net: Any, version: int, qos: int) -> None:
    """After PUBACK or PUBCOMP the same identifier is a new message, whatever its DUP flag says."""
    subscriber, publisher, topic = net.client(version), net.client(version), net.topic()
    subscriber.subscribe(topic, qos=2)
    for number, dup in enumerate((False, True, False)):
        publisher.start_publish(topic, f"m{number}", qos=qos, pid=77, dup=dup)
        publisher.expect(T.PUBACK if qos == 1 else T.PUBREC, pid=77)
        if qos == 2:
            publisher.release(77)
        subscriber.message(f"m{number}", dup=False)
    net.quiet(subscriber, publisher)


@both
@v3("4.3.3-2")
@v5("4.3.3-11", "3.7.2-1")
def test_pubrel_is_always_answered(net: Any, version: int) -> None:
    """A PUBREL is answered with PUBCOMP also when repeated; in 5.0 it may say that it does not know the identifier."""
    client = net.client(version)
    client.start_publish(net.topic(), b"x", qos=2, pid=9)
    client.expect(T.PUBREC, pid=9)
    for _ in range(2):
        assert client.release(9).reason in (0, 0x92)


@v5("4.3.3-11", "3.7.2-1")
def test_pubrel_of_unknown_id(net: Any) -> None:
    """A PUBREL out of the blue gets PUBCOMP; its reason is success or "identifier not found"."""
    client = net.client(V5)
    assert client.release(4321).reason in (0, 0x92)
    client.ping()


@both
@acked_qos
@v3("2.3.1-1", "2.3.1-2", "2.3.1-4", "4.3.2-1", "4.3.3-1")
@v5("2.2.1-4", "4.3.2-1", "4.3.3-1")
def test_outgoing_ids_differ(net: Any, version: int, qos: int) -> None:
    """Messages in flight to one client have different identifiers, none of them 0."""
    subscriber, publisher, topic = net.client(version), net.client(version), net.topic()
    subscriber.subscribe(topic, qos=qos)
    for number in range(10):
        publisher.publish(topic, str(number), qos=qos)
    got = [subscriber.expect(T.PUBLISH) for _ in range(10)]
    assert len({one.pid for one in got}) == 10
    assert [one.payload for one in got] == [str(number).encode() for number in range(10)]
    for one in got:
        subscriber.finish(one)
    subscriber.ping()


@both
@v3("4.3.3-1")
@v5("4.3.3-4", "4.3.3-5", "3.6.2-1")
def test_pubrec_is_answered_with_pubrel(net: Any, version: int) -> None:
    """The broker releases with the identifier of its PUBLISH, also when several are under way."""
    subscriber, publisher, topic = net.client(version), net.client(version), net.topic()
    subscriber.subscribe(topic, qos=2)
    for number in range(3):
        publisher.publish(topic, str(number), qos=2)
    got = [subscriber.expect(T.PUBLISH) for _ in range(3)]
    for one in got:
        subscriber.ack(T.PUBREC, one.pid)
    for one in got:
        subscriber.expect(T.PUBREL, pid=one.pid)
    for one in got:
        subscriber.ack(T.PUBCOMP, one.pid)
    net.quiet(subscriber, publisher)


@both
@acked_qos
@v3("3.3.1-3")
@v5("3.3.1-3")
def test_dup_is_not_passed_on(net: Any, version: int, qos: int) -> None:
    """The DUP flag of a publisher says nothing to the subscriber."""
    subscriber, publisher, topic = net.client(version), net.client(version), net.topic()
    subscriber.subscribe(topic, qos=2)
    pid = publisher.start_publish(topic, b"d", qos=qos, dup=True)
    publisher.expect(T.PUBACK if qos == 1 else T.PUBREC, pid=pid)
    if qos == 2:
        publisher.release(pid)
    subscriber.message(b"d", dup=False)


@both
@acked_qos
@v3("3.3.1-1", "4.4.0-1", "2.3.1-3", "2.3.1-4", "4.3.2-1", "4.3.3-1")
@v5("3.3.1-1", "4.4.0-1", "4.3.2-3", "4.3.3-3")
def test_unacknowledged_message_is_sent_again(net: Any, version: int, qos: int) -> None:
    """After a reconnect: the same message, the same identifier, and DUP set."""
    name, publisher, topic = net.new_id(), net.client(version), net.topic()
    subscriber = net.session(version, name)
    subscriber.subscribe(topic, qos=qos)
    publisher.publish(topic, b"again", qos=qos)
    first = subscriber.expect(T.PUBLISH)
    subscriber.close()
    for _ in range(2):
        subscriber = net.session(version, name)
        assert subscriber.connack.session_present
        got = subscriber.expect(T.PUBLISH)
        assert (got.pid, got.dup, got.qos, got.payload) == (first.pid, True, qos, b"again")
        subscriber.close()
    subscriber = net.session(version, name)
    subscriber.message(b"again", pid=first.pid, dup=True)
    net.quiet(subscriber, publisher)
    subscriber.disconnect()
    net.session(version, name).nothing()


@both
@v3("4.4.0-1", "4.3.3-1")
@v5("4.4.0-1", "4.3.3-5", "4.3.3-6")
def test_unacknowledged_pubrel_is_sent_again(net: Any, version: int) -> None:
    """After PUBREC only the PUBREL is repeated, never the PUBLISH."""
    name, publisher, topic = net.new_id(), net.client(version), net.topic()
    subscriber = net.session(version, name)
    subscriber.subscribe(topic, qos=2)
    publisher.publish(topic, b"half", qos=2)
    pid = subscriber.expect(T.PUBLISH).pid
    subscriber.ack(T.PUBREC, pid)
    subscriber.expect(T.PUBREL, pid=pid)
    subscriber.close()
    subscriber = net.session(version, name)
    subscriber.expect(T.PUBREL, pid=pid)
    subscriber.nothing()
    subscriber.ack(T.PUBCOMP, pid)
    net.quiet(subscriber, publisher)


@both
@v3("4.4.0-1", "4.3.3-2", "4.1.0-1")
@v5("4.3.3-10", "4.1.0-1")
def test_qos2_of_a_publisher_that_comes_back(net: Any, version: int) -> None:
    """The receiver remembers the identifier over a reconnect: the message arrives exactly once."""
    name, subscriber, topic = net.new_id(), net.client(version), net.topic()
    subscriber.subscribe(topic, qos=2)
    publisher = net.session(version, name)
    publisher.start_publish(topic, b"exactly once", qos=2, pid=11)
    publisher.expect(T.PUBREC, pid=11)
    publisher.close()
    publisher = net.session(version, name)
    publisher.start_publish(topic, b"exactly once", qos=2, pid=11, dup=True)
    publisher.expect(T.PUBREC, pid=11)
    publisher.release(11)
    subscriber.message(b"exactly once")
    net.quiet(subscriber, publisher)


@both
@v3("4.3.3-2")
@v5("4.3.3-11")
def test_pubrel_after_a_reconnect(net: Any, version: int) -> None:
    """A publisher that lost the connection after PUBREC may release on the next one."""
    name, subscriber, topic = net.new_id(), net.client(version), net.topic()
    subscriber.subscribe(topic, qos=2)
    publisher = net.session(version, name)
    publisher.start_publish(topic, b"released later", qos=2, pid=12)
    publisher.expect(T.PUBREC, pid=12)
    publisher.close()
    publisher = net.session(version, name)
    assert publisher.release(12).reason == 0
    subscriber.message(b"released later")
    net.quiet(subscriber, publisher)


@acked_qos
@v5("4.4.0-2", "4.3.3-4")
def test_refused_message_is_done(net: Any, qos: int) -> None:
    """A client that refuses a message with an error code does not get it again, nor a PUBREL."""
    name, publisher, topic = net.new_id(), net.client(V5), net.topic()
    subscriber = net.session(V5, name)
    subscriber.subscribe(topic, qos=qos)
    publisher.publish(topic, b"refused", qos=qos)
    got = subscriber.expect(T.PUBLISH)
    subscriber.ack(T.PUBACK if qos == 1 else T.PUBREC, got.pid, 0x80)
    net.quiet(subscriber, publisher)
    subscriber.nothing(T.PUBREL)
    subscriber.disconnect()
    subscriber = net.session(V5, name)
    net.quiet(subscriber, publisher)
    subscriber.nothing(T.PUBREL)


@both
@timed
@acked_qos
@v3("4.4.0-1")
@v5("4.4.0-1")
def test_no_repetition_on_an_open_connection(net: Any, version: int, qos: int) -> None:
    """An unacknowledged message is not sent again as long as the connection lasts."""
    subscriber, publisher, topic = net.client(version), net.client(version), net.topic()
    subscriber.subscribe(topic, qos=qos)
    publisher.publish(topic, b"wait", qos=qos)
    got = subscriber.expect(T.PUBLISH)
    subscriber.rest(6)
    subscriber.nothing()
    subscriber.finish(got)


@both
@pytest.mark.parametrize("size", [0, 1, 100, 127, 128, 16000, 16383, 16384, 200000])
@v3("4.3.2-2", "3.3.2-3")
@v5("4.3.2-4", "3.3.2-3")
def test_payload_sizes(net: Any, version: int, size: int) -> None:
    """Payloads of any size arrive byte for byte, over the borders of the length encoding."""
    subscriber, publisher, topic = net.client(version), net.client(version), net.topic()
    payload = bytes(range(256)) * (size // 256) + bytes(range(size % 256))
    limit = publisher.connack.props.get("maximum_packet_size", 2**28)
    if size + 100 > limit:
        pytest.skip(f"the broker takes packets up to {limit} bytes")
    subscriber.subscribe(topic, qos=1)
    publisher.publish(topic, payload, qos=1)
    subscriber.message(payload)


@both
@v3("3.3.4-1", "4.3.2-2")
@v5("3.3.4-1", "4.3.2-4")
def test_many_in_one_segment(net: Any, version: int) -> None:
    """Many packets in one write are all handled, each with its own acknowledgement."""
    client, topic = net.client(version), net.topic()
    count = client.window(15)
    client.send(b"".join(w.publish(version, topic, b"x", qos=1, pid=pid) for pid in range(1, count + 1)))
    assert sorted(client.expect(T.PUBACK).pid for _ in range(count)) == list(range(1, count + 1))


@both
@v3("4.5.0-2")
@v5("4.5.0-1")
def test_every_subscriber_gets_a_copy(net: Any, version: int) -> None:
    """Several subscribers, the publisher among them, each get the message once."""
    clients, topic = [net.client(version) for _ in range(5)], net.topic()
    for client in clients:
        client.subscribe(topic, qos=1)
    clients[0].publish(topic, b"all", qos=1)
    for client in clients:
        client.message(b"all")
    for client in clients[1:]:
        client.nothing()


@both
@acked_qos
@v3("3.3.5-2")
@v5("3.4.2-1", "3.5.2-1")
def test_publish_without_subscribers(net: Any, version: int, qos: int) -> None:
    """A message that nobody wants is still acknowledged positively."""
    net.client(version).publish(net.topic("nobody"), b"x", qos=qos)
