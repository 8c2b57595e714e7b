"""Size and speed of start: figures are printed, bounds are those of the README's table."""

from __future__ import annotations

import asyncio
import os
import resource
import signal
import socket
import statistics
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import mqttwire as w
from cluster import HOST, Cluster, free_base, get, resident_kib, wait_for
from mqttwire import V311

CONNECTIONS = 10_000


async def open_idle(ports: list[int], count: int) -> list[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """So many connected clients, spread over the ports."""
    gate = asyncio.Semaphore(200)

    async def one(number: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        async with gate:
            source = f"127.0.0.{2 + number % 5}"  # more source addresses than one, or the ports would run out
            reader, writer = await asyncio.open_connection(HOST, ports[number % len(ports)], local_addr=(source, 0))
            writer.write(w.connect(V311, f"idle-{number}", clean=True, keepalive=0))
            answer = await asyncio.wait_for(reader.readexactly(4), 30)
            assert answer == bytes([0x20, 2, 0, 0])
            return reader, writer

    return await asyncio.gather(*(one(number) for number in range(count)))


async def ping(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """PINGREQ and its answer."""
    writer.write(w.PINGREQ)
    assert await asyncio.wait_for(reader.readexactly(2), 60) == b"\xd0\x00"


def test_10_000_connections_on_three_nodes(make_cluster: Callable[..., Cluster]) -> None:
    """MQ-16 in small: all stay connected and answer; prints the memory each one costs."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    assert hard > CONNECTIONS + 500, f"at most {hard} open files allowed here"
    cluster = make_cluster(3)
    before = [resident_kib(pid) for pid in cluster.pids]

    async def scenario() -> list[int]:
        clients = await open_idle(cluster.ports(), CONNECTIONS)
        await asyncio.gather(*(ping(*client) for client in clients))
        sizes = [resident_kib(pid) for pid in cluster.pids]
        counts = [cluster.status(node)["connections"] for node in range(3)]
        assert sum(counts) == CONNECTIONS, counts
        for _, writer in clients:
            writer.transport.abort()
        return sizes

    after = asyncio.run(scenario())
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    each = [(b - a) * 1024 * 3 / CONNECTIONS for a, b in zip(before, after, strict=True)]
    print(f"\nidle node {max(before) / 1024:.1f} MiB; one idle connection {statistics.mean(each) / 1024:.2f} KiB")
    assert statistics.mean(each) < 8 * 1024
    wait_for("all connections are closed", lambda: sum(cluster.status(node)["connections"] for node in range(3)) == 0)


def test_a_node_idles_below_15_mib_and_starts_fast(binary: Path, tmp_path: Path) -> None:
    """Start to first accepted connection, and resident memory when idle."""
    starts = []
    for attempt in range(5):
        port, http, cluster = free_base(1)
        started = time.monotonic()
        process = subprocess.Popen(
            [str(binary), "serve", "--port", str(port), "--http-port", str(http), "--cluster-port", str(cluster),
             "--data-dir", str(tmp_path / f"data{attempt}")], stderr=subprocess.DEVNULL)
        try:
            wait_for("MQTT is answered", lambda port=port: _answers(port), 10)
            starts.append(time.monotonic() - started)
            wait_for("the node is ready", lambda http=http: _ready(http), 10)
            size = resident_kib(process.pid)
        finally:
            process.send_signal(signal.SIGTERM)
            assert process.wait(10) == 0
    print(f"\nstart {min(starts) * 1000:.0f} to {max(starts) * 1000:.0f} ms; idle {size / 1024:.1f} MiB; {os.cpu_count()} cores")
    assert size < 15 * 1024
    assert min(starts) < 0.5  # generous: the machine may be busy; the README has the figure


def _answers(port: int) -> bool:
    try:
        with socket.create_connection((HOST, port), timeout=1) as probe:
            probe.sendall(w.connect(V311, "start", clean=True))
            return probe.recv(4) == bytes([0x20, 2, 0, 0])
    except OSError:
        return False


def _ready(http: int) -> bool:
    try:
        return bool(get(f"http://{HOST}:{http}/health/ready"))
    except OSError:
        return False
