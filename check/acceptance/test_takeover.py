"""Nodes die for good, without journals: their sessions go on at others."""

from __future__ import annotations

import os
import random
import statistics
import time

import pytest

from cluster import wait_for
from durable import Node, Side, everybody, first_times, knows_all, pump, settle


def is_whole(node: Node) -> bool:
    """Whether a node has all the copies it is to have, and nothing is on the move."""
    status = node.status()
    return status["copies"] == status["copies_wanted"] == 2 and status["moving"] == status["orphaned"] == 0


@pytest.mark.parametrize("nodes", ["memory"], indirect=True)
def test_sessions_go_on_when_their_node_is_killed(nodes: list[Node]) -> None:
    """FT-20, FT-21, FT-22, FT-24, FT-29, MQ-05, MQ-06, MQ-11, MQ-13: with numbered messages under way, a node is killed, and its
    clients connect elsewhere at once: nothing acknowledged is lost, nothing with QoS 2 comes twice, the order stays."""
    rounds = max(2, int(os.environ.get("SEDGE_KILLS", "10")) // 2)
    rng = random.Random(int(os.environ.get("SEDGE_SEED", "1")))
    publishers, subscribers, where = everybody(nodes, rng)
    pairs = list(zip(publishers, subscribers, strict=True))
    sides: list[Side] = [*subscribers, *publishers]
    gaps: list[float] = []

    def load(seconds: float) -> None:
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            for publisher in publishers:
                if len(publisher.open) < 10:
                    publisher.publish()
            for side in sides:
                assert pump(side), f"{side.name}: the connection was ended"

    for _ in range(rounds):
        wait_for("everything is copied", lambda: all(is_whole(node) for node in nodes), 30)
        load(0.3)
        wait_for("everything is copied", lambda: all(is_whole(node) for node in nodes), 30)
        victim = rng.choice(nodes)
        others = [node for node in nodes if node is not victim]
        victim.kill()
        killed = time.monotonic()
        moved = [side for side in sides if where[side.name] is victim]
        for side in moved:
            while pump(side):
                pass
            where[side.name] = rng.choice(others)
            side.connect(where[side.name])
            gaps.append(time.monotonic() - killed)
        load(0.3)
        victim.start()
        wait_for("it is linked again", lambda: all(knows_all(node) for node in nodes), 30)
    settle(sides, lambda: not any(p.open for p in publishers), lambda: [(p.name, p.open) for p in publishers])

    def missing() -> dict[str, list[int]]:
        found = {s.name: sorted(set(range(p.next)) - set(s.got)) for p, s in pairs}
        return {name: numbers for name, numbers in found.items() if numbers}

    settle(sides, lambda: not missing(), missing)
    settle(sides, lambda: True, lambda: None)
    for publisher, subscriber in pairs:
        assert first_times(subscriber.got) == sorted(set(subscriber.got)), f"{subscriber.name}: out of order"
        if publisher.qos == 2:
            assert len(subscriber.got) == len(set(subscriber.got)), f"{subscriber.name}: a message came twice"
    again = sum(len(s.got) - len(set(s.got)) for s in subscribers)
    print(f"\n{rounds} kills, {sum(p.next for p in publishers)} messages, {again} repetitions with QoS 1; served again after "
          f"{min(gaps) * 1000:.0f} to {max(gaps) * 1000:.0f} ms, {statistics.median(gaps) * 1000:.0f} in the median, "
          f"{max(gaps) * 1000:.0f} ms at most")
