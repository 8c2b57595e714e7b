"""Clients behind one HAProxy while nodes die: they come back to the same address, and miss nothing."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from cluster import HOST, wait_for
from scaling import Site, has_haproxy, spread

pytestmark = pytest.mark.skipif(not has_haproxy(), reason="haproxy is not installed")
# The source's longest recovery with two of four nodes down, behind its load balancer, in ms (fault-tolerant cluster, FT-39).
SOURCE_MS = 256.33
# Kills of two nodes, each on a site of its own.
TIMES = int(os.environ.get("SEDGE_BALANCER_KILLS", "1"))


@pytest.fixture
def site(binary: Path, tmp_path: Path) -> Iterator[Site]:
    """Four nodes that survive the death of two, behind one HAProxy."""
    made = Site(binary, tmp_path)
    (tmp_path / "node.toml").write_text("[cluster]\ncopies = 3\n")
    made.write(least=4, most=4, high=100_000, low=0, limits=", config: node.toml")
    made.start()
    try:
        made.wait_serving(4, 30)
        yield made
    finally:
        made.close()


@pytest.mark.parametrize("_time", range(TIMES))
def test_two_of_four_die_behind_the_balancer(site: Site, _time: int) -> None:
    """FT-38, FT-39: clients that ping every 200 ms, two nodes killed at once: all come back through the balancer by themselves, with all messages."""
    site.call("scale", "pause", str(site.file))
    command = [str(site.binary), "bench", "run", "failover", "--broker", f"{HOST}:{site.port}", "--duration", "6", "--warmup", "2", "--json", "--quiet"]
    load = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    wait_for("clients are at all nodes", lambda: len(found := spread(site)) == 4 and min(found.values()) >= 2, 10)

    def copied() -> bool:
        said = [json.loads(site.ask(node, "/api/v1/status")) for node in site.nodes()]
        return all(one["copies"] == 3 for one in said)

    wait_for("each session has three copies", copied, 10)
    for node in site.nodes()[:2]:
        os.kill(node["pid"], signal.SIGKILL)
    told = json.loads(load.communicate(timeout=60)[0])
    longest = told["latency_us"]["max"] / 1_000
    print(f"\n{told['expected']} messages, {told['disconnects']} lost connections, {told['resent']} sent again, {told['duplicates']} came twice; "
          f"longest latency {longest:.1f} ms (source: {SOURCE_MS})")
    assert told["lost"] == 0 and told["duplicates"] <= told["resent"], told
    # Generous: a client that a balancer sends to a dead node again and again waits for three seconds and more.
    assert longest < 2_000, told
