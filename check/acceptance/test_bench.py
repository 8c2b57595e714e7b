"""`sedge bench` measures a running cluster (small: this proves that the tool works, not how fast anything is)."""

from __future__ import annotations

import json
import os
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


SUITE = """
[[row]]
name = "work"
scenario = "pairs"
load = { publishers = 10, duration = 0.5, warmup = 0.2, drain = 2 }

[[row]]
name = "latency"
scenario = "pairs"
measure = "latency"
load = { publishers = 10, qos = 1, rate = 500, duration = 0.5, warmup = 0.2, drain = 2 }

[[row]]
name = "memory"
scenario = "idle"
measure = "memory"
load = { publishers = 200, duration = 0.3 }
"""


def test_a_suite_compares_sedge_with_mosquitto(binary: Path, tmp_path: Path) -> None:
    """BM-07: one command starts both, measures all loads in turn and prints one table."""
    (tmp_path / "suite.toml").write_text(SUITE)
    listed = subprocess.run([str(binary), "bench", "compare"], capture_output=True, text=True, timeout=60)
    lines = {line.split()[0]: line for line in listed.stdout.splitlines()}
    assert "not installed" not in lines["sedge"] + lines["mosquitto"], listed.stdout + listed.stderr
    port = 23_000 + os.getpid() % 1_000 * 2
    command = [str(binary), "bench", "suite", "sedge", "mosquitto", "--suite", str(tmp_path / "suite.toml"), "--rounds", "1",
               "--port", str(port), "--journal", str(tmp_path / "journal"), "--markdown", str(tmp_path / "table.md")]
    done = subprocess.run([*command, "--json"], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    suite = json.loads(done.stdout)
    assert all(broker["version"] for broker in suite["brokers"]), suite["brokers"]
    assert "Linux" in suite["machine"]
    for runs in suite["runs"]:
        for run in runs["rounds"]:
            assert run["error"] is None and (run["lost"], run["duplicates"], run["reordered"]) == (0, 0, 0), runs
    figures = {(line["row"], line["figure"]): line["cells"] for line in suite["lines"]}
    for key in [("work", "k/CPU-s"), ("latency", "p99, µs"), ("memory", "KiB/conn.")]:
        assert all(cell["value"]["median"] > 0 for cell in figures[key]), (key, figures[key])
    assert "| sedge | mosquitto |" in (tmp_path / "table.md").read_text()
    again = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert again.returncode == 0 and again.stderr == "", "measured again: " + again.stderr
    assert "KiB/conn." in again.stdout
