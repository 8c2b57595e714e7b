"""The list of clients in the dashboard and the API, with many sessions; SEDGE_MANY_SESSIONS=100000 for as many as a large site has (a minute)."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from cluster import HOST, wait_for
from test_dashboard import Browser, Cluster3, pytestmark

__all__ = ["pytestmark"]
SESSIONS = int(os.environ.get("SEDGE_MANY_SESSIONS", "20000"))
AT_ONCE = 100


def name(number: int) -> str:
    """The client id of a session."""
    return f"meter-{number:06}"


def connect_packet(client: str) -> bytes:
    """A CONNECT of MQTT 3.1.1 that begins a session that stays."""
    body = b"\x00\x04MQTT\x04\x00\x00\x3c" + len(client).to_bytes(2, "big") + client.encode()
    return bytes([0x10, len(body)]) + body


async def begin_sessions(ports: list[int]) -> None:
    """Connects and disconnects every client, so many at once."""
    numbers = iter(range(SESSIONS))

    async def worker() -> None:
        for number in numbers:
            reader, writer = await asyncio.open_connection(HOST, ports[number % len(ports)])
            writer.write(connect_packet(name(number)))
            assert await asyncio.wait_for(reader.readexactly(4), 60) == b"\x20\x02\x00\x00"
            writer.write(b"\xe0\x00")
            writer.close()

    await asyncio.gather(*(worker() for _ in range(AT_ONCE)))


@pytest.fixture(scope="module")
def site(binary: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster3]:
    """Three nodes with many sessions of clients that are away."""
    running = Cluster3(binary, tmp_path_factory.mktemp("sessions") / "data")
    try:
        asyncio.run(begin_sessions(running.ports()))
        yield running
    finally:
        running.stop()


def total(site: Cluster3, node: int) -> int:
    """Sessions of the whole cluster, as a node tells them."""
    return int(site.api(node, "sessions?node=*&limit=1")["total"])


def test_many_sessions_are_listed_page_by_page(site: Cluster3) -> None:
    """OP-02: pages, orders and searches come at once however many sessions there are, and all are there when a node has died."""
    wait_for("all sessions are listed", lambda: total(site, 0) == SESSIONS, 30)
    browser = Browser("many", site.url(), sessions=f"{SESSIONS:,}", one=name(SESSIONS - 1), ws=site.ws)
    browser.until("before the death")
    site.kill(2)
    wait_for("its sessions go on at others", lambda: total(site, 0) == SESSIONS, 60)
    browser.go_on()
    times = browser.finish()["times"]
    print(f"\n{SESSIONS} sessions, milliseconds until shown: {times}")
    # Generous: the machine may be busy, and the build one for debugging.
    assert max(times.values()) < 20_000, times
