"""CONNECT and CONNACK: the first exchange on a connection."""

from __future__ import annotations

from typing import Any

import pytest

import mqttwire as w
from client import ClientError
from marks import both, expects_reason, v3, v5
from mqttwire import V5, V311, T


@both
@v3("3.1.4-4", "3.2.0-1", "3.2.2-1", "3.1.4-3")
@v5("3.1.4-5", "3.2.0-1", "3.2.2-1", "3.2.2-2", "3.2.2-8", "3.1.4-4")
def test_connack_comes_first(net: Any, version: int) -> None:
    """A good CONNECT is answered with success and, for a clean start, no session."""
    client = net.raw(version)
    got = client.connect(net.new_id())
    assert not got.session_present
    client.nothing(T.CONNACK)


@both
@v3("4.3.1-1")
@v5("3.2.0-2", "4.2-1")
def test_packets_may_follow_connect_at_once(net: Any, version: int) -> None:
    """A client need not wait for the CONNACK before it subscribes and publishes."""
    client, topic = net.raw(version), net.topic()
    data = w.connect(version, net.new_id()) + w.subscribe(version, 9, [(topic, 1)])
    client.send(data + w.publish(version, topic, b"early", qos=1, pid=10) + w.PINGREQ)
    client.expect(T.CONNACK, reason=0)
    client.expect(T.SUBACK, pid=9)
    client.expect(T.PUBACK, pid=10)
    client.message(b"early")
    client.expect(T.PINGRESP)
    client.nothing(T.CONNACK)


@both
@v5("4.2-1")
@v3("7.1.1-2")
def test_bytes_one_at_a_time(net: Any, version: int) -> None:
    """Packet borders have nothing to do with segments of the byte stream."""
    client, topic = net.raw(version), net.topic()
    data = w.connect(version, net.new_id()) + w.subscribe(version, 3, [(topic, 0)])
    for one in data + w.publish(version, topic, b"slow") + w.PINGREQ:
        client.send(bytes([one]))
    client.expect(T.CONNACK, reason=0)
    client.expect(T.SUBACK, pid=3)
    client.message(b"slow")
    client.expect(T.PINGRESP)


@both
@v3("3.1.3-5", "3.1.3-2")
@v5("3.1.3-5", "3.1.3-2")
@pytest.mark.parametrize("length", [1, 2, 22, 23])
def test_client_id_lengths(net: Any, version: int, length: int) -> None:
    """Ids of 1 to 23 letters and digits are accepted."""
    alphabet = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
    start = int(net.name, 16) % len(alphabet)
    net.client(version, (alphabet[start:] + alphabet)[:length]).ping()


@both
@v3("3.1.3-5")
@v5("3.1.3-5")
@pytest.mark.parametrize("part", ["0123456789abcdefghijklm", "nopqrstuvwxyzABCDEFGHIJ", "KLMNOPQRSTUVWXYZ"])
def test_client_id_alphabet(net: Any, version: int, part: str) -> None:
    """Every letter and digit may stand in an id."""
    net.client(version, part).ping()


@both
@v3("3.1.3-2")
@v5("3.1.3-2")
def test_client_ids_are_told_apart_by_case(net: Any, version: int) -> None:
    """Two ids that differ in case only are two clients."""
    name = net.new_id()
    first, second = net.client(version, name.lower()), net.client(version, name.upper())
    first.ping()
    second.ping()


@v3("3.1.3-6", "3.1.3-7")
def test_empty_client_id_with_clean_session(net: Any) -> None:
    """An empty id with a clean session is served or refused as such; two such clients do not meet."""
    first, second = net.raw(V311), net.raw(V311)
    for client in (first, second):
        got = client.try_connect("")
        assert got.reason in (0, 2)
        if got.reason:
            client.expect_closed()
            return
    first.ping()
    second.ping()


@v3("3.1.3-8", "3.1.3-9", "3.2.2-4", "3.2.2-5")
def test_empty_client_id_without_clean_session(net: Any) -> None:
    """An empty id cannot name a session to keep: return code 2, then the end."""
    client = net.raw(V311)
    got = client.try_connect("", clean=False)
    assert (got.reason, got.session_present) == (2, False)
    assert client.expect_closed() == []


@v5("3.1.3-6", "3.1.3-7", "3.2.2-16")
def test_assigned_client_id(net: Any) -> None:
    """For an empty id the broker makes up a new one, tells it, and it works like any other."""
    first, second = net.raw(V5), net.raw(V5)
    names = []
    for client in (first, second):
        got = client.connect("", props={"session_expiry_interval": 60})
        names.append(got.props["assigned_client_identifier"])
        assert names[-1]
    assert names[0] != names[1]
    first.disconnect()
    again = net.session(V5, names[0], expiry=0)
    assert again.connack.session_present
    assert "assigned_client_identifier" not in again.connack.props
    second.ping()
    net.session(V5, names[1], expiry=0)


@both
@v3("3.1.4-2")
@v5("3.1.4-3")
def test_takeover(net: Any, version: int) -> None:
    """A second connection with the same id ends the first; in a cluster, on whatever node it is."""
    name = net.new_id()
    first = net.client(version, name)
    second = net.client(version, name)
    first.expect_closed(0x8E, patient=True)
    second.ping()


@expects_reason
@v5("3.1.4-3")
def test_takeover_says_why(net: Any) -> None:
    """The first connection gets DISCONNECT 0x8E."""
    name = net.new_id()
    first = net.client(V5, name)
    net.client(V5, name)
    first.expect_closed(0x8E, must_say=True, patient=True)


@both
@v3("3.1.4-2")
@v5("3.1.4-3")
def test_takeover_many_times(net: Any, version: int) -> None:
    """Of many connections with one id the last survives."""
    name = net.new_id()
    clients = [net.client(version, name) for _ in range(8)]
    for client in clients[:-1]:
        client.expect_closed(0x8E, patient=True)
    clients[-1].ping()


@both
@v3("3.1.4-5")
@v5("3.1.4-6", "3.1.4-2")
def test_nothing_after_a_refused_connect(net: Any, version: int) -> None:
    """Packets right behind a CONNECT that is refused have no effect."""
    watcher, publisher, topic = net.client(version), net.client(version), net.topic("x")
    watcher.subscribe(topic, qos=1)
    bad = bytearray(w.connect(version, net.new_id()))
    bad[9] |= 1  # the reserved connect flag
    client = net.raw(version)
    client.send(bytes(bad) + w.publish(version, topic, b"no", qos=1, pid=1) + w.subscribe(version, 2, [(topic, 0)]))
    for got in client.expect_closed():
        assert got.type == T.CONNACK
    net.quiet(watcher, publisher)


@pytest.mark.parametrize("name", ["MQTX", "mqtt", "MQ", "MQTTT"])
@pytest.mark.parametrize("level", [4, 5])
@v3("3.1.2-1")
@v5("3.1.2-1")
def test_protocol_name(net: Any, name: str, level: int) -> None:
    """Another protocol name than MQTT: no service; a CONNACK before the close says unsupported version."""
    client = net.raw(V311)
    props = b"\0" if level == 5 else b""
    client.send(w.packet(0x10, w.binary(name) + bytes([level, 2, 0, 60]) + props + w.binary("a")))
    got = client.read_raw_until_closed()
    assert got in (b"", b"\x20\x02\x00\x01", b"\x20\x03\x00\x84\x00", b"\x20\x03\x00\x81\x00", b"\x20\x03\x00\x82\x00")


@pytest.mark.parametrize("level", [0, 6, 7, 100, 255])
@v3("3.1.2-2")
@v5("3.1.2-2")
def test_protocol_level(net: Any, level: int) -> None:
    """An unknown protocol level is refused with the code of either version, without properties, and closed."""
    client = net.raw(V311)
    client.send(w.packet(0x10, w.binary("MQTT") + bytes([level, 2, 0, 60]) + w.binary("a")))
    got = client.read_raw_until_closed()
    assert got in (b"\x20\x02\x00\x01", b"\x20\x03\x00\x84\x00")


@v5("4.12.0-1", "3.2.2-7", "3.2.2-6", "4.13.2-1", "4.12.0-4")
def test_unknown_authentication_method(net: Any) -> None:
    """A method the broker does not know: CONNACK 0x8C or 0x87 or nothing, then the end."""
    client = net.raw(V5)
    client.send(w.connect(V5, net.new_id(), props={"authentication_method": "ct-" + net.name}))
    for got in client.expect_closed(0x8C, 0x87):
        assert not got.session_present


@v5("4.12.0-6", "3.1.2-28")
def test_connack_without_what_was_not_asked_for(net: Any) -> None:
    """No authentication method and, unless asked for, no response information."""
    for props in ({}, {"request_response_information": 0}):
        got = net.client(V5, props=props).connack
        assert "authentication_method" not in got.props
        assert "response_information" not in got.props


@v5("3.1.2-28")
def test_request_response_information(net: Any) -> None:
    """Asking for response information is fine, whether or not the broker has any."""
    net.client(V5, props={"request_response_information": 1}).ping()


@v5("3.1.2-24", "3.2.2-19", "3.2.2-20")
def test_connack_fits_maximum_packet_size(net: Any) -> None:
    """Nothing optional makes the CONNACK longer than the client takes."""
    client = net.raw(V5)
    got = client.connect(net.new_id(), props={"maximum_packet_size": 100})
    assert len(got.raw) <= 100


@v5("3.2.2-8", "2.2.2-1")
def test_connect_properties_are_accepted(net: Any) -> None:
    """All properties of a CONNECT at once."""
    props = {
        "session_expiry_interval": 1, "receive_maximum": 65535, "maximum_packet_size": 268435460,
        "topic_alias_maximum": 65535, "request_response_information": 0, "request_problem_information": 1,
        "user_property": [("a", "1"), ("a", "1"), ("", "")],
    }
    net.client(V5, props=props).ping()


@v5("3.2.2-9", "3.2.2-10")
def test_maximum_qos(net: Any) -> None:
    """A broker that announces a maximum QoS still grants subscriptions of any QoS."""
    client = net.client(V5)
    assert client.connack.props.get("maximum_qos", 0) in (0, 1)
    for qos in (0, 1, 2):
        client.subscribe(net.topic(str(qos)), qos=qos)


@v5("3.2.2-12", "3.2.2-13")
def test_will_beyond_capabilities(net: Any) -> None:
    """A will that the broker cannot serve is refused; one that it can serve is not."""
    able = net.client(V5).connack.props
    client = net.raw(V5)
    will = w.Will(net.topic(), qos=2, retain=True)
    client.send(w.connect(V5, net.new_id(), will=will))
    if able.get("maximum_qos", 2) < 2 or able.get("retain_available", 1) == 0:
        client.expect_closed(0x9B, 0x9A)
        return
    client.connack = client.expect(T.CONNACK, reason=0)
    client.disconnect()


@both
@v3("3.1.2-8")
@v5("3.1.2-7")
def test_long_fields(net: Any, version: int) -> None:
    """A CONNECT with a large will is read whole."""
    client = net.raw(version)
    client.connect(net.new_id(), will=w.Will(net.topic("w" * 200), b"x" * 60000))
    client.disconnect()


@both
@v3("3.1.4-1")
@v5("3.1.4-1")
def test_connect_never_finished(net: Any, version: int) -> None:
    """Half a CONNECT gets no answer, and others are served meanwhile."""
    client = net.raw(version)
    client.send(w.connect(version, net.new_id())[:9])
    net.client(version, port=client.port).ping()
    client.sock.shutdown(1)
    try:
        got = client.read_until_closed()
    except ClientError as error:
        raise AssertionError("a half CONNECT keeps its connection after the client ended it") from error
    assert got == []
