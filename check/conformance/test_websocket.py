"""MQTT over WebSocket, if the broker has a port for it (`--ws-port`)."""

from __future__ import annotations

from typing import Any

import pytest

import mqttwire as w
from client import Client
from marks import both, v3, v5
from mqttwire import T
from ws import WsSocket


@pytest.fixture
def ws_port(request: pytest.FixtureRequest) -> int:
    """The WebSocket port."""
    port = request.config.getoption("--ws-port")
    if not port:
        pytest.skip("no --ws-port given")
    return int(port)


def _client(net: Any, port: int, version: int) -> tuple[Client, WsSocket]:
    """A client whose bytes travel in frames."""
    sock = WsSocket(net.host, port, timeout=net.wait)
    client = Client(net.host, port, version, net.wait, sock=sock)
    net.adopt(client)
    return client, sock


@both
@v3("6.0.0-4")
@v5("6.0.0-4")
def test_subprotocol(net: Any, ws_port: int, version: int) -> None:
    """The broker takes up the connection and selects mqtt."""
    _, sock = _client(net, ws_port, version)
    assert " 101 " in sock.status
    assert sock.headers["sec-websocket-protocol"] == "mqtt"


@both
@v3("6.0.0-1")
@v5("6.0.0-1")
def test_messages_over_websocket(net: Any, ws_port: int, version: int) -> None:
    """Messages go both ways between WebSocket and TCP, in binary frames."""
    client, _ = _client(net, ws_port, version)
    client.connect(net.new_id())
    other = net.client(version)
    client.subscribe(net.topic("in"), qos=2)
    other.subscribe(net.topic("out"), qos=2)
    for size in (0, 100, 1000, 70000):
        client.publish(net.topic("out"), b"o" * size, qos=2)
        other.message(b"o" * size)
        other.publish(net.topic("in"), b"i" * size, qos=2)
        client.message(b"i" * size)


@both
@v3("6.0.0-2")
@v5("6.0.0-2")
def test_frames_and_packets(net: Any, ws_port: int, version: int) -> None:
    """Frames may hold several packets, or single bytes of one."""
    client, sock = _client(net, ws_port, version)
    topic = net.topic()
    for byte in w.connect(version, net.new_id()) + w.subscribe(version, 1, [(topic, 1)]):
        sock.send_frame(bytes([byte]))
    client.expect(T.CONNACK, reason=0)
    client.expect(T.SUBACK, pid=1)
    sock.send_frame(b"".join(w.publish(version, topic, b"x", qos=1, pid=pid) for pid in range(1, 6)) + w.PINGREQ)
    for _ in range(5):
        client.expect(T.PUBACK)
        client.message(b"x")
    client.expect(T.PINGRESP)


@both
@v3("6.0.0-1")
@v5("6.0.0-1")
def test_text_frame_ends_the_connection(net: Any, ws_port: int, version: int) -> None:
    """MQTT in a text frame is an error."""
    client, sock = _client(net, ws_port, version)
    client.connect(net.new_id())
    sock.send_frame(w.PINGREQ, opcode=1)
    client.expect_closed()
