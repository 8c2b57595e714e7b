"""Authentication and authorization: AUTH, and messages that a broker refuses. Needs a broker with accounts and rules."""

from __future__ import annotations

from typing import Any

import pytest

import guarded as g
import mqttwire as w
from marks import v5
from mqttwire import V5, T


def again(client: Any, scram: g.Scram) -> None:
    """Begins another authentication."""
    client.send(w.auth(g.AGAIN, g.props(scram.first)))


@v5("4.12.0-2", "4.12.0-5", "4.12.0-4")
def test_scram(guarded: Any) -> None:
    """CONNECT, AUTH 0x18 to and fro, CONNACK: all name the method, and each side proves that it knows the password."""
    client = guarded.raw(V5)
    g.connect(client, guarded.new_id())
    client.subscribe(guarded.topic(), qos=1)
    client.publish(guarded.topic(), "x", qos=1)
    client.message("x")


@v5("4.12.0-4", "4.12.0-1", "3.2.2-7")
@pytest.mark.parametrize(("user", "password"), [(g.USER, "wrong"), ("nobody", g.PASSWORD)], ids=["password", "user"])
def test_scram_refused(guarded: Any, user: str, password: str) -> None:
    """A wrong proof: CONNACK with an error, then the end. An unknown user is asked all the same, twice for the same salt."""
    salts = set()
    for _ in range(2):
        client, scram = guarded.raw(V5), g.Scram(user, password)
        step = g.begin(client, guarded.new_id(), scram).props["authentication_data"]
        salts.add(step.partition(b",s=")[2])
        client.send(w.auth(g.CONTINUE, g.props(scram.last(step))))
        client.expect_closed(0x87, 0x86, must_say=True)
    assert len(salts) == 1


@v5("4.12.0-4", "4.12.0-5")
@pytest.mark.parametrize("packet", [
    pytest.param(w.auth(g.CONTINUE, g.props(b"x", "OTHER")), id="another method"),
    pytest.param(w.auth(g.AGAIN, g.props(b"x")), id="begun again"),
    pytest.param(w.auth(g.CONTINUE, g.props(b"x")), id="no message of SCRAM"),
    pytest.param(w.auth(g.CONTINUE, g.props(b"")), id="nothing"),
    pytest.param(w.PINGREQ, id="PINGREQ"),
    pytest.param(w.publish(V5, "ct/t"), id="PUBLISH"),
])
def test_only_the_answer_may_follow(guarded: Any, packet: bytes) -> None:
    """Whatever else a client sends before CONNACK ends the connection."""
    client = guarded.raw(V5)
    g.begin(client, guarded.new_id(), g.Scram())
    client.send(packet)
    client.expect_closed()


@v5("4.12.0-5")
def test_authentication_again(guarded: Any) -> None:
    """Section 4.12.1: another exchange on the same connection ends with AUTH 0; meanwhile messages go on."""
    client = guarded.raw(V5)
    g.connect(client, guarded.new_id())
    client.subscribe(guarded.topic(), qos=1)
    for payload in ("1", "2"):
        scram = g.Scram()
        again(client, scram)
        step = g.asked(client)
        client.publish(guarded.topic(), payload, qos=1)
        client.message(payload)
        client.send(w.auth(g.CONTINUE, g.props(scram.last(step.props["authentication_data"]))))
        done = client.expect(T.AUTH, reason=0)
        assert done.props["authentication_method"] == g.METHOD
        scram.check(done.props["authentication_data"])


@v5("4.12.1-2")
@pytest.mark.parametrize("how", ["wrong", "junk", "method", "twice"])
def test_failed_again(guarded: Any, how: str) -> None:
    """A repetition that fails ends with DISCONNECT."""
    client, scram = guarded.raw(V5), g.Scram(password="wrong")
    g.connect(client, guarded.new_id())
    if how == "junk":
        client.send(w.auth(g.AGAIN, g.props(b"junk")))
    elif how == "method":
        client.send(w.auth(g.AGAIN, g.props(scram.first, "OTHER")))
    else:
        again(client, scram)
        step = g.asked(client)
        if how == "twice":
            again(client, scram)
        else:
            client.send(w.auth(g.CONTINUE, g.props(scram.last(step.props["authentication_data"]))))
    wanted = {"wrong": 0x87, "junk": 0x87, "method": 0x8C, "twice": 0x82}[how]
    got = client.expect_closed(wanted, must_say=True)
    assert got[-1].type == T.DISCONNECT


@v5("3.15.2-2", "3.15.2-3")
def test_auth_fits_the_client(guarded: Any) -> None:
    """A client that has room for an AUTH with nothing but method and data gets one that is no longer."""
    step = g.begin(guarded.raw(V5), guarded.new_id(), g.Scram())
    bare = {name: step.props[name] for name in ("authentication_method", "authentication_data")}
    room = len(w.auth(g.CONTINUE, bare))
    client = guarded.raw(V5)
    assert len(g.begin(client, guarded.new_id(), g.Scram(), props={"maximum_packet_size": room}).raw) <= room


@v5("4.3.3-9")
def test_refused_qos2_frees_its_identifier(guarded: Any) -> None:
    """After PUBREC with an error the identifier stands for a new message, which is delivered."""
    client = guarded.client(V5, username=g.USER, password=g.PASSWORD.encode())
    client.subscribe(guarded.topic(), qos=2)
    pid = client.start_publish(f"{g.REFUSED}/{guarded.name}", "refused", qos=2)
    assert client.expect(T.PUBREC, pid=pid).reason == 0x87
    assert client.start_publish(guarded.topic(), "new", qos=2, pid=pid) == pid
    assert client.expect(T.PUBREC, pid=pid).reason == 0
    client.release(pid)
    client.message("new")
    client.nothing()
