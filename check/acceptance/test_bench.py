"""`sedge bench` measures a running cluster (small: this proves that the tool works, not how fast anything is)."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from cluster import HOST, Cluster

KEYS = {"ingress_per_s", "egress_per_s", "lost", "duplicates", "reordered", "latency_us", "jitter_us", "broker_cpu_s",
        "egress_per_cpu_s", "broker_rss_kib"}


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_pairs_across_the_nodes_lose_nothing(binary: Path, cluster: Cluster, qos: int) -> None:
    """Publishers and subscribers on all nodes: each message once and in order."""
    brokers = ",".join(f"{HOST}:{port}" for port in cluster.ports())
    pids = [word for pid in cluster.pids for word in ("--pid", str(pid))]
    done = subprocess.run(
        [str(binary), "bench", "run", "pairs", "--broker", brokers, *pids, "--publishers", "6", "--subscribers", "6",
         "--topics", "6", "--qos", str(qos), "--rate", "200", "--duration", "2", "--json"],
        capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    figures = json.loads(done.stdout)
    assert set(figures) >= KEYS
    assert (figures["lost"], figures["duplicates"], figures["reordered"]) == (0, 0, 0), figures
    assert figures["egress_per_s"] > 0 and figures["broker_cpu_s"] > 0
