"""Wrong bytes: the broker closes that connection, in 5.0 with the right reason code, and nobody else notices."""

from __future__ import annotations

from typing import Any

import pytest

import mqttwire as w
import tables
from client import Client
from marks import both, expects_reason, v3, v5
from mqttwire import V5, V311, T
from tables import Case

CASES = tables.load()


def _param(case: Case) -> Any:
    marks = ([v3(*case.v3)] if case.v3 else []) + ([v5(*case.v5)] if case.v5 else [])
    return pytest.param(case, id=case.id, marks=marks)


def _explained(case: Case) -> bool:
    """A DISCONNECT with a reason code can be sent and answers these bytes."""
    return case.stage == "after" and case.version == V5 and bool(case.reasons) and not case.may_serve


class Bystander:
    """Another client on the same node, which must go on as if nothing had happened."""

    def __init__(self, net: Any, port: int, version: int) -> None:
        self.topic = net.topic("bystander")
        self.client, self.publisher = net.client(version, port=port), net.client(version)
        self.client.subscribe(self.topic, qos=1)

    def check(self) -> None:
        """Still gets messages and answers to its pings, and nothing else."""
        self.publisher.publish(self.topic, b"still here", qos=1)
        self.client.message(b"still here", topic=self.topic)
        self.client.nothing()


def _attack(net: Any, case: Case) -> tuple[Client, Bystander]:
    attacker: Client = net.raw(case.version)
    if case.stage == "after":
        attacker.connect(net.new_id())
    bystander = Bystander(net, attacker.port, case.version)
    attacker.send(case.data)
    return attacker, bystander


def _stays_open(attacker: Client) -> bool:
    """Either the broker closes, or it goes on serving."""
    if attacker.connack is None:
        got = attacker.read_until(T.CONNACK)
        return got is not None and not got.reason
    attacker.send(w.PINGREQ)
    return attacker.read_until(T.PINGRESP) is not None


@pytest.mark.parametrize("case", [_param(case) for case in CASES])
@v3("4.8.0-1")
@v5("4.13.1-1", "4.13.2-1")
def test_closes(net: Any, case: Case) -> None:
    """The connection is closed and a bystander on the same node notices nothing."""
    attacker, bystander = _attack(net, case)
    if not case.may_serve or not _stays_open(attacker):
        got = attacker.expect_closed(*(case.reasons if case.stage == "before" else ()))
        assert not (case.silent and got), f"a malformed CONNECT of 3.1.1 gets no answer: {got}"
    bystander.check()


@expects_reason
@pytest.mark.parametrize("case", [pytest.param(case, id=case.id) for case in CASES if _explained(case)])
@v5("4.13.1-1", "3.14.2-1", "3.14.2-2", "3.14.4-1", "3.14.4-2")
def test_says_why(net: Any, case: Case) -> None:
    """A 5.0 broker sends DISCONNECT with the reason before it closes."""
    _attack(net, case)[0].expect_closed(*case.reasons, must_say=True)


@both
@v3("4.8.0-1")
@v5("4.13.1-1")
def test_noise_is_survived(net: Any, version: int) -> None:
    """Bytes that are no MQTT at all, on many connections, do not disturb a bystander."""
    first = net.raw(version)
    bystander = Bystander(net, first.port, version)
    hello = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"
    noise = [b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", hello, bytes(range(256)), b"\xff" * 512]
    for data in noise * 3:
        client = net.raw(version, port=first.port)
        client.send(data)
        client.close()
    bystander.check()


@both
@v3("4.8.0-1")
@v5("4.13.1-1")
def test_half_a_packet_then_gone(net: Any, version: int) -> None:
    """Connections that break off inside a packet leave nothing behind."""
    whole = w.publish(version, net.topic("half"), b"x" * 300, qos=1, pid=1)
    watcher, publisher = net.client(version), net.client(version)
    watcher.subscribe(net.topic("half"), qos=1)
    for cut in (1, 2, 3, 5, 40, len(whole) - 1):
        client = net.client(version)
        client.send(whole[:cut])
        client.close()
    net.quiet(watcher, publisher)


@v5("3.14.0-1")
def test_no_disconnect_before_connack(net: Any) -> None:
    """Whatever comes before the CONNACK, the broker does not answer it with DISCONNECT."""
    for data in (w.publish(V5, "t", b"x"), w.packet(0x10, b"\x00\x04MQTT\x05\x03\x00\x3c\x00\x00\x01a"), w.PINGREQ):
        client = net.raw(V5)
        client.send(data)
        assert T.DISCONNECT not in [one.type for one in client.read_until_closed()]


@both
@v3("3.14.4-1", "3.14.4-2")
@v5("3.14.4-1")
def test_nothing_after_disconnect(net: Any, version: int) -> None:
    """A packet that a client sends after its DISCONNECT has no effect."""
    watcher, publisher = net.client(version), net.client(version)
    topic = net.topic("late")
    watcher.subscribe(topic, qos=1)
    client = net.client(version)
    client.send(w.disconnect(version) + w.publish(version, topic, b"late", qos=1, pid=7))
    assert T.PUBACK not in [one.type for one in client.read_until_closed()]
    net.quiet(watcher, publisher)


def test_versions_differ() -> None:
    """The tables hold rows for both versions."""
    assert {case.version for case in CASES} == {V311, V5}
