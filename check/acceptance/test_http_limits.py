"""HTTP connections that take and give nothing: they end, and take nothing from others meanwhile."""

from __future__ import annotations

import resource
import socket
import subprocess
import time
from collections.abc import Callable

from client import Client
from cluster import HOST, get, metric, wait_for
from durable import Node
from mqttwire import T

def half_request(port: int) -> socket.socket:
    """A connection on which the first line of a request has come."""
    connection = socket.create_connection((HOST, port), 5)
    connection.sendall(b"GET /api/v1/status HTTP/1.1\r\nHost: localhost\r\n")
    return connection


def ends_within(connection: socket.socket, seconds: float) -> float:
    """How long it takes until the other side closes."""
    started = time.monotonic()
    connection.settimeout(seconds)
    try:
        while connection.recv(65_536):
            pass
    except ConnectionError:
        pass
    return time.monotonic() - started


def configured(make_node: Callable[..., Node], lines: str) -> Node:
    """A node with these lines for [http]."""
    node = make_node("memory")
    node.stop()
    config = node.data.parent / f"{node.data.name}.toml"
    text = config.read_text().replace("[http]\n", f"[http]\n{lines}")
    config.write_text(text)
    with open(node.log, "ab") as log:
        node.process = subprocess.Popen([str(node.binary), "serve", "-c", str(config)], stderr=log, stdout=log)
    wait_for("the node is ready", node._ready, 20)
    return node


def test_a_request_that_does_not_come_ends(make_node: Callable[..., Node]) -> None:
    """SEC: a request that begins and trickles, and a connection that asks nothing; a client that has been answered may ask again."""
    node = configured(make_node, 'request_timeout = "1s"\nidle_timeout = "3s"\n')
    slow, silent, kept = half_request(node.http), socket.create_connection((HOST, node.http), 5), half_request(node.http)
    kept.sendall(b"\r\n")
    assert b"200 OK" in kept.recv(65_536)
    for _ in range(8):
        time.sleep(0.05)  # the trickle
        slow.sendall(b"X-More: 1\r\n")
    assert ends_within(slow, 5) < 2
    assert ends_within(silent, 5) < 2
    assert 1 < ends_within(kept, 6) < 4, "the idle time is another one"
    assert metric(node.http, "sedge_http_timeouts_total") >= 3


def test_too_many_connections_let_others_in(make_node: Callable[..., Node]) -> None:
    """SEC: with 400 half requests the API answers within two seconds, and clients come in."""
    node = configured(make_node, "max_connections = 20\n")
    held = []
    for _ in range(400):
        held.append(half_request(node.http))
    asked = time.monotonic()

    def answers() -> bool:
        try:
            return bool(get(f"http://{HOST}:{node.http}/health/live", 1))
        except OSError:
            return False

    wait_for("the API answers", answers, 5)
    assert time.monotonic() - asked < 2.5
    node.client("somebody", clean=True, props={}).publish("topic", "x", qos=1)
    assert metric(node.http, "sedge_http_connections") <= 20
    assert metric(node.http, "sedge_http_over_limit_total") > 300
    for connection in held:
        connection.close()


def test_a_large_body_is_refused(make_node: Callable[..., Node]) -> None:
    """SEC: `http.max_body_bytes` counts for every request with a body."""
    node = make_node("memory")
    with socket.create_connection((HOST, node.http), 5) as connection:
        connection.sendall(
            b"POST /api/v1/reload HTTP/1.1\r\nHost: localhost\r\nX-Sedge: 1\r\nContent-Length: 70000\r\n\r\n" + bytes(70_000))
        assert b" 413 " in connection.recv(200)


def answer(client: Client, payload: str) -> int:
    """The reason code of a retained publication."""
    pid = client.start_publish("topic", payload, qos=1, retain=True)
    reason: int = client.expect(T.PUBACK, pid=pid).reason
    return reason


def test_want_of_descriptors_is_no_broken_disk(make_node: Callable[..., Node]) -> None:
    """FT-29: the journal gets no descriptor for its next segment: QoS 1 is refused until there is one, and nothing is lost."""
    node = make_node("journal", shards=1, max_journal_bytes=4 << 20)
    writer, other = node.client("writer"), node.client("other")
    assert node.process
    pid, payload = node.process.pid, "x" * 100_000
    before = resource.prlimit(pid, resource.RLIMIT_NOFILE, (3, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
    for number in range(1, 100):
        # A publication that finds the journal without a descriptor is answered when there is one.
        writer.start_publish("topic", payload, qos=1, retain=True, pid=number)
    wait_for("a publication is refused", lambda: answer(other, "x") == 0x97, 10)
    resource.prlimit(pid, resource.RLIMIT_NOFILE, before)
    wait_for("one is taken again", lambda: answer(other, "last") < 0x80, 10)
    assert "no room in the journal" in node.log.read_text()
    node.kill()
    node.start()
    reader = node.client("reader", clean=True, props={})
    reader.subscribe("topic", qos=1)
    assert reader.message().payload == b"last"
