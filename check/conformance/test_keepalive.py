"""Keep alive and pings."""

from __future__ import annotations

import time
from typing import Any

import pytest

import mqttwire as w
from client import Client
from marks import both, expects_reason, timed, v3, v5
from mqttwire import V5, T

SLACK = 8.0  # how much later than at one and a half times the broker may notice; Mosquitto looks every five seconds


def _silent(net: Any, version: int, seconds: int) -> tuple[Client, float]:
    """A client that says nothing after its CONNECT, and the keep alive that holds for it."""
    client = net.client(version, keepalive=seconds)
    return client, holds(client, seconds)


def holds(client: Client, seconds: int) -> float:
    """The keep alive after the broker had its say; too long a one cannot be waited for."""
    told = client.connack.props if client.connack else {}
    used = float(told.get("server_keep_alive", seconds))
    if used > 5:
        pytest.skip(f"the broker sets a keep alive of {used} s")
    return used


@both
@v3("3.12.4-1")
@v5("3.12.4-1")
def test_ping(net: Any, version: int) -> None:
    """Each PINGREQ is answered, also many at once."""
    client = net.client(version)
    client.ping()
    client.send(w.PINGREQ * 50)
    for _ in range(50):
        client.expect(T.PINGRESP)
    client.nothing(T.PINGRESP)


@both
@timed
@v3("3.1.2-24")
@v5("3.1.2-22", "3.2.2-22")
def test_silence_ends_the_connection(net: Any, version: int) -> None:
    """One and a half times the keep alive without a packet, and the broker closes, but not before the keep alive."""
    client, seconds = _silent(net, version, 2)
    began = time.monotonic()
    got = client.read_until_closed(timeout=seconds * 1.5 + SLACK)
    assert time.monotonic() - began >= seconds - 0.2
    assert [one.reason for one in got if one.type == T.DISCONNECT] in ([], [0x8D])


@expects_reason
@timed
@v5("3.1.2-22", "4.13.2-1")
def test_silence_says_why(net: Any) -> None:
    """In 5.0 the reason is 0x8D."""
    client, seconds = _silent(net, V5, 1)
    got = client.read_until_closed(timeout=seconds * 1.5 + SLACK)
    assert [one.reason for one in got] == [0x8D]


@both
@timed
@v3("3.1.2-24")
@v5("3.1.2-22")
def test_pings_keep_it_open(net: Any, version: int) -> None:
    """A ping within every keep alive is enough."""
    client = net.client(version, keepalive=1)
    client.rest(5)
    client.ping()


@both
@timed
@v3("3.1.2-24")
@v5("3.1.2-22")
def test_other_packets_keep_it_open(net: Any, version: int) -> None:
    """Any packet counts, not only pings."""
    client = net.client(version, keepalive=1)
    for _ in range(10):
        time.sleep(0.5)  # real seconds are what this test is about
        client.publish(net.topic(), b"x")
    client.ping()


@both
@timed
@v3("3.1.2-24")
@v5("3.1.2-22")
def test_receiving_does_not_keep_it_open(net: Any, version: int) -> None:
    """Packets from the broker do not count as signs of life of the client."""
    client, publisher, topic = net.client(version, keepalive=1), net.client(version), net.topic()
    client.subscribe(topic)
    limit = 1.5 * holds(client, 1) + SLACK
    end = time.monotonic() + limit
    while time.monotonic() < end:
        publisher.publish(topic, b"x", qos=1)
        time.sleep(0.25)  # real seconds are what this test is about
    got = client.read_until_closed()
    assert T.PUBLISH in [one.type for one in got]


@both
@timed
@v3("3.1.2-24")
@v5("3.1.2-22")
def test_keep_alive_zero(net: Any, version: int) -> None:
    """With 0 there is no limit, unless the broker sets one."""
    client = net.client(version, keepalive=0)
    if client.connack.props.get("server_keep_alive"):
        return
    net.client(version).rest(6)
    client.ping()


@both
@timed
@v3("3.1.2-24")
@v5("3.1.2-22")
def test_half_a_packet_is_no_sign_of_life(net: Any, version: int) -> None:
    """A packet that never ends does not keep the connection open for ever."""
    client = net.client(version, keepalive=1)
    client.send(b"\x30\x7f\x00")
    client.read_until_closed(timeout=1.5 * holds(client, 1) + SLACK)


@both
@v3("3.1.2-24")
@v5("3.1.2-21", "3.2.2-21")
def test_largest_keep_alive(net: Any, version: int) -> None:
    """The largest value is accepted; a lower one of the broker's own is announced in 5.0."""
    client = net.client(version, keepalive=65535)
    assert client.connack.props.get("server_keep_alive", 1) > 0
    client.ping()
