"""`sedge advise`: from the subscribers of a cluster that runs."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

from client import Client
from cluster import HOST, Cluster
from mqttwire import V5


def test_it_counts_the_subscribers_of_all_nodes(binary: Path, make_cluster: Callable[..., Cluster]) -> None:
    """SG-27 to SG-29: subscribers by node, delays and times as measured; a user who leaves nodes out is told."""
    cluster = make_cluster(3)
    clients = []
    for number in range(6):
        client = Client(HOST, cluster.ports()[number % 3], V5, timeout=10)
        client.connect(f"c{number}")
        client.subscribe("spread", qos=0)
        if number == 0:
            client.subscribe("alone", qos=0)
            client.subscribe("$share/g/spread", qos=0)
        clients.append(client)
    for _ in range(20):
        clients[1].publish("spread", "x", qos=1)
    bases = [f"http://{HOST}:{cluster.http + node}" for node in range(3)]

    def advise(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([str(binary), "advise", *words], capture_output=True, text=True, timeout=30)

    done = advise(*bases[1:], "--api", bases[0], "--watch", "1", "--json")
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert (report["nodes"], report["subscribers"], report["shared"], report["filters_total"]) == (3, 7, 1, 2)
    assert report["link_ms"] > 0 and report["publications_per_s"] >= 0
    spread, alone = report["filters"]
    assert (spread["filter"], spread["subscribers"], spread["nodes"]) == ("spread", 6, 3)
    assert (alone["filter"], alone["subscribers"], alone["nodes"], alone["advice"]) == ("alone", 1, 1, "intensive")
    shown = advise(*bases[1:], "--api", bases[0], "--link-ms", "1", "--each-ms", "0.01")
    assert shown.returncode == 0 and "as given" in shown.stdout and "spread" in shown.stdout, shown
    part = advise("--api", bases[0])
    assert part.returncode == 2 and "1 of the 3 nodes" in part.stderr, part
