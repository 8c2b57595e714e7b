"""Floods of slow readers, of connections and of half-open handshakes: the others go on, and memory stays within its limit."""

from __future__ import annotations

import json
import multiprocessing
import os
import resource
import socket
import ssl
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

import mqttwire as w
from cluster import HOST, metric, resident_kib, wait_for
from mqttwire import V311
from pki import authority, sign

SLOW = 1_000
HALF_OPEN = 3_000
FLOODERS = 2
PAYLOAD = 1_000
LIMIT = 128 * 1024 * 1024
BUSY_RATE = 100
"""Publications a second on the topic that the slow readers have: each is a hundred thousand deliveries a second."""
ROUNDS = 1_000
PAUSE = 0.002
LARGE, COPIES = 1_000_000, 10
"""Bytes of a message for all slow readers, and how many there are of them."""
LONGEST_TURN = 0.02
TRIES = 3
"""Of so many measurements the least counts: the machine may do something else meanwhile."""

CONFIG = """\
[mqtt]
bind = "127.0.0.1"
port = 0
[http]
port = 0
[cluster]
bind = "127.0.0.1"
port = 0
[limits]
max_buffered_bytes = {limit}
[listener.tls]
bind = "127.0.0.1"
port = 0
cert_file = "{dir}/node.crt"
key_file = "{dir}/node.key"
"""

fork = multiprocessing.get_context("fork")


class Node:
    """One node with a TLS listener and the limit."""

    def __init__(self, process: subprocess.Popen[str], directory: Path) -> None:
        assert process.stdout
        ready: dict[str, Any] = json.loads(process.stdout.readline())
        self.pid, self.dir = process.pid, directory
        self.http = int(ready["http"].rsplit(":", 1)[1])
        ports = {listener["name"]: int(listener["address"].rsplit(":", 1)[1]) for listener in ready["listeners"]}
        self.port, self.tls = ports["mqtt"], ports["tls"]


@pytest.fixture
def node(binary: Path, tmp_path: Path) -> Iterator[Node]:
    """A node of the test's own, and as many open files as the machine allows."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    authority(tmp_path, "ca")
    sign(tmp_path, "ca", "node", "node")
    config = tmp_path / "sedge.toml"
    config.write_text(CONFIG.format(dir=tmp_path, limit=LIMIT))
    with (tmp_path / "log").open("w") as log, subprocess.Popen(
        [str(binary), "serve", "--json", "-c", str(config)], stdout=subprocess.PIPE, stderr=log, text=True
    ) as process:
        try:
            yield Node(process, tmp_path)
        finally:
            process.terminate()
            assert process.wait(30) == 0, (tmp_path / "log").read_text()
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def exactly(client: socket.socket, count: int) -> bytes:
    """So many bytes."""
    got = b""
    while len(got) < count:
        piece = client.recv(count - len(got))
        assert piece, "the node has closed the connection"
        got += piece
    return got


def join(port: int, name: str, topic: str = "", qos: int = 0, buffer: int = 0, context: ssl.SSLContext | None = None) -> socket.socket:
    """A connected client, subscribed to `topic`; with a small receive buffer if one is given."""
    client = socket.socket()
    if buffer:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer)
    client.settimeout(30)
    client.connect((HOST, port))
    client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if context:
        client = context.wrap_socket(client, server_hostname="localhost")
    client.sendall(w.connect(V311, name, clean=True, keepalive=0))
    assert exactly(client, 4) == bytes([0x20, 2, 0, 0])
    if topic:
        client.sendall(w.subscribe(V311, 1, [(topic, qos)]))
        assert exactly(client, 5)[0] == 0x90
    return client


def round_trips(client: socket.socket, topic: str, rounds: int = ROUNDS) -> list[float]:
    """Seconds of round trips of one client to itself, one after the other with pauses."""
    packet = w.publish(V311, topic, b"x" * 64)
    times = []
    for _ in range(rounds):
        start = time.perf_counter()
        client.sendall(packet)
        assert exactly(client, len(packet)) == packet
        times.append(time.perf_counter() - start)
        time.sleep(PAUSE)  # the load, not a wait for something
    return times


def p99(client: socket.socket, topic: str) -> float:
    """The least 99th percentile of some measurements, in milliseconds."""
    return min(statistics.quantiles(round_trips(client, topic), n=100)[98] * 1000 for _ in range(TRIES))


@contextmanager
def meanwhile(work: Callable[..., None], count: int, *arguments: object) -> Iterator[Callable[[], int]]:
    """Processes that do `work(number, done, *arguments)` over and over; a function says how often they did. In processes of their own, so that
    they do not keep the one that measures from running."""
    counters = [fork.Value("q", 0) for _ in range(count)]
    workers = [fork.Process(target=work, args=(number, counters[number], *arguments), daemon=True) for number in range(count)]
    for worker in workers:
        worker.start()
    try:
        wait_for("they all work", lambda: all(counter.value for counter in counters), 30)
        yield lambda: sum(counter.value for counter in counters)
        assert all(worker.is_alive() for worker in workers), "one has failed"
    finally:
        for worker in workers:
            worker.terminate()
            worker.join()


def publish_steadily(_number: int, done: Any, port: int) -> None:
    """Publishes at QoS 1 at a fixed rate, so that slow readers get it with the QoS they have."""
    client = join(port, "busy-publisher")
    start = time.perf_counter()
    while True:
        client.sendall(w.publish(V311, "busy", b"y" * PAYLOAD, qos=1, pid=done.value % 60_000 + 1))
        assert exactly(client, 4)[0] == 0x40
        done.value += 1
        time.sleep(max(0.0, start + done.value / BUSY_RATE - time.perf_counter()))  # the load


@pytest.mark.parametrize("qos", [0, 1])
def test_a_thousand_slow_readers_take_nobody_down(node: Node, qos: int) -> None:
    """MQ-09: with their queues full, others' round trips take not much longer, and memory is within the limit."""
    echo = join(node.port, "echo", "echo")
    slow = [join(node.port, f"slow-{number}", "busy", qos, buffer=4096) for number in range(SLOW)]
    empty = resident_kib(node.pid)
    quiet = p99(echo, "echo")

    # Full: the held memory does not grow any more, and messages are dropped.
    publisher = join(node.port, "filler")
    packet = w.publish(V311, "busy", b"z" * PAYLOAD, qos=1, pid=1)

    def fill() -> bool:
        for _ in range(200):
            publisher.sendall(packet)
            assert exactly(publisher, 4)[0] == 0x40
        # At QoS 0 the queue has to be longer than its outbox for the oldest to make room.
        return metric(node.http, "sedge_dropped_messages_total", cause="buffers_full") > 20 * SLOW

    wait_for("all queues are full", fill, 240)
    held = metric(node.http, "sedge_buffered_bytes")
    full = resident_kib(node.pid)
    still = p99(echo, "echo")
    with meanwhile(publish_steadily, 1, node.port):
        busy = p99(echo, "echo")
    worst = max(full, resident_kib(node.pid))
    held = max(held, metric(node.http, "sedge_buffered_bytes"))
    print(
        f"\nQoS {qos}: p99 quiet {quiet:.2f} ms, with {SLOW} full queues {still:.2f} ms, and {BUSY_RATE} publications a "
        f"second for them {busy:.2f} ms; held {held / 2**20:.1f} of {LIMIT / 2**20:.0f} MiB, resident {empty / 1024:.1f} MiB "
        f"before, {worst / 1024:.1f} MiB at most",
        file=sys.stderr)
    assert held <= LIMIT
    assert (worst - empty) * 1024 <= LIMIT
    # Twice is the goal; the rest is for a machine that does something else meanwhile.
    assert still <= 4 * quiet + 5
    assert busy <= 4 * quiet + 20
    for client in slow:
        client.close()
    wait_for("what was held is free", lambda: metric(node.http, "sedge_buffered_bytes") == 0, 30)


def publish_large(_number: int, done: Any, port: int) -> None:
    """Publishes large messages for all slow readers, then small ones for nobody."""
    client = join(port, "large-publisher")
    done.value += 1
    while True:
        large = done.value <= COPIES
        topic, payload = ("large", os.urandom(LARGE)) if large else ("nobody", b"x")
        client.sendall(w.publish(V311, topic, payload, qos=1, pid=1))
        assert exactly(client, 4)[0] == 0x40
        done.value += 1


def large_copies(node: Node, qos: int) -> tuple[float, float]:
    """The longest turn and the longest round trip of another client while a thousand clients get large messages, in seconds."""
    echo = join(node.port, "echo", "echo")
    slow = [join(node.port, f"slow-{number}", "large", qos, buffer=4096) for number in range(SLOW)]
    wait_for("nothing before counts", lambda: metric(node.http, "sedge_loop_lag_seconds") < LONGEST_TURN, 30)
    worst, lag = 0.0, 0.0
    with meanwhile(publish_large, 1, node.port) as published:
        while published() <= COPIES + 1:
            worst = max(worst, *round_trips(echo, "echo", 20))
            lag = max(lag, metric(node.http, "sedge_loop_lag_seconds"))
    lag = max(lag, metric(node.http, "sedge_loop_lag_seconds"))
    for client in [echo, *slow]:
        client.close()
    return lag, worst


@pytest.mark.parametrize("qos", [0, 1])
def test_large_copies_for_a_thousand_slow_readers_stall_nobody(node: Node, qos: int) -> None:
    """MQ-09: while a thousand clients get 10 messages of 1 MB each, no turn of the event loop is long, and others' round trips are short."""
    for _ in range(TRIES):
        lag, worst = large_copies(node, qos)
        print(f"\nQoS {qos}: the longest round trip {worst * 1000:.1f} ms, the longest turn {lag * 1000:.1f} ms", file=sys.stderr)
        if lag <= LONGEST_TURN and worst <= 2 * LONGEST_TURN:
            return
    assert lag <= LONGEST_TURN
    assert worst <= 2 * LONGEST_TURN


def publish_small(_number: int, done: Any, port: int) -> None:
    """Publishes small messages as fast as the node takes them, many in each write."""
    client = join(port, "small-publisher")
    packets = w.publish(V311, "small", b"x") * 3000 + w.publish(V311, "small", b"x", qos=1, pid=1)
    while True:
        client.sendall(packets)
        assert exactly(client, 4)[0] == 0x40
        done.value += 1


def test_small_messages_for_a_thousand_clients_stall_nobody(node: Node) -> None:
    """MQ-09: while one client publishes thousands of small messages at a time for a thousand clients, turns of the event loop become short."""
    echo = join(node.port, "echo", "echo")
    slow = [join(node.port, f"slow-{number}", "small", buffer=4096) for number in range(SLOW)]
    with meanwhile(publish_small, 1, node.port):
        first = metric(node.http, "sedge_loop_lag_seconds")
        short = lambda: metric(node.http, "sedge_loop_lag_seconds") <= 5 * LONGEST_TURN  # noqa: E731
        wait_for("turns are short", short, 30)
        worst = max(round_trips(echo, "echo", 50))
        lag = metric(node.http, "sedge_loop_lag_seconds")
    print(f"\nthe longest turn {first * 1000:.1f} ms at first, then {lag * 1000:.1f} ms; the longest round trip {worst * 1000:.1f} ms", file=sys.stderr)
    # That of a debug build on a machine that does something else meanwhile.
    assert worst <= 15 * LONGEST_TURN
    for client in slow:
        client.close()


def connect_and_go(number: int, done: Any, port: int) -> None:
    """Connects and leaves without a word: every second time before CONNECT, else before it could read the answer."""
    while True:
        client = socket.create_connection((HOST, port), timeout=30)
        if done.value % 2:
            client.sendall(w.connect(V311, f"flood-{number}-{done.value}", clean=True))
        # A reset, or the flood would end when all its ports wait for late segments.
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")
        client.close()
        done.value += 1


def test_a_flood_of_connections_takes_nobody_down(node: Node) -> None:
    """MQ-09: while processes connect as fast as they can, connected clients are served, and another client comes in."""
    echo = join(node.port, "echo", "echo")
    quiet, empty = p99(echo, "echo"), resident_kib(node.pid)
    with meanwhile(connect_and_go, FLOODERS, node.port) as connections:
        before, start = connections(), time.perf_counter()
        busy = p99(echo, "echo")
        rate = (connections() - before) / (time.perf_counter() - start)
        start = time.perf_counter()
        join(node.port, "late").close()
        entry = time.perf_counter() - start
    worst = resident_kib(node.pid)
    print(f"\n{rate:.0f} connections a second: p99 {busy:.2f} ms, quiet {quiet:.2f} ms; one more client is in after {entry * 1000:.1f} ms; "
          f"resident {empty / 1024:.1f} MiB before, {worst / 1024:.1f} MiB after", file=sys.stderr)
    assert rate > 100, "no flood"
    assert busy <= 10 * quiet + 50
    assert entry < 10
    assert worst < empty + 32 * 1024


def test_half_open_handshakes_take_nobody_down(node: Node) -> None:
    """MQ-09, MQ-19: with three times as many TLS handshakes begun as may be under way, and their clients silent, those who are
    connected are served, and another client comes in over TLS."""
    context = ssl.create_default_context(cafile=str(node.dir / "ca.crt"))
    hello = ssl.MemoryBIO()
    begun = context.wrap_bio(ssl.MemoryBIO(), hello, server_hostname="localhost")
    with pytest.raises(ssl.SSLWantReadError):
        begun.do_handshake()
    half = hello.read()[:100]
    echo = join(node.port, "echo", "echo")
    quiet, empty = p99(echo, "echo"), resident_kib(node.pid)
    with ExitStack() as stack:
        for _ in range(HALF_OPEN):
            client = stack.enter_context(socket.create_connection((HOST, node.tls), timeout=30))
            client.sendall(half)
        wait_for("the node has its fill of them", lambda: metric(node.http, "sedge_handshakes") >= 900)
        busy, worst = p99(echo, "echo"), resident_kib(node.pid)
        start = time.perf_counter()
        # Those that began more than a second ago give way.
        def enters() -> bool:
            try:
                join(node.tls, "late", context=context).close()
            except (OSError, AssertionError):
                return False
            return True

        wait_for("a client comes in", enters, 30)
        entry = time.perf_counter() - start
    print(f"\n{HALF_OPEN} half-open handshakes: p99 {busy:.2f} ms, quiet {quiet:.2f} ms; one more TLS client is in after {entry * 1000:.1f} ms; "
          f"resident {empty / 1024:.1f} MiB before, {worst / 1024:.1f} MiB with them", file=sys.stderr)
    assert busy <= 4 * quiet + 20
    assert worst < empty + 64 * 1024
