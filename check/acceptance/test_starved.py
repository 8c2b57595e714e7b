"""A busy node is not a dead node."""

from __future__ import annotations

import os
import subprocess
import sys
import time

import pytest

from cluster import wait_for
from durable import Node, knows_all

SECONDS = int(os.environ.get("SEDGE_STARVED_SECONDS", "60"))
BURN = "while True: pass"


@pytest.mark.parametrize("nodes", ["memory"], indirect=True)
def test_starved_nodes_are_not_declared_dead(nodes: list[Node]) -> None:
    """FT-07: all nodes on one processor, at the lowest priority, beside processes that want all of it."""
    one = min(os.sched_getaffinity(0))
    lives = [node.status()["incarnation"] for node in nodes]
    for node in nodes:
        assert node.process
        for thread in os.listdir(f"/proc/{node.process.pid}/task"):
            os.setpriority(os.PRIO_PROCESS, int(thread), 19)
            os.sched_setaffinity(int(thread), {one})
    burners = [subprocess.Popen([sys.executable, "-c", BURN], preexec_fn=lambda: os.sched_setaffinity(0, {one})) for _ in range(2)]
    try:
        time.sleep(SECONDS)  # what is measured is that nothing happens in this time
    finally:
        for burner in burners:
            burner.kill()
            burner.wait()
    said = [line for node in nodes for line in node.log.read_text().splitlines() if "does not answer any more" in line or "had taken this node for dead" in line]
    assert not said, said
    wait_for("all know each other", lambda: all(knows_all(node) for node in nodes))
    assert [node.status()["incarnation"] for node in nodes] == lives
