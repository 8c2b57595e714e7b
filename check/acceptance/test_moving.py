"""Nodes of a cluster with journals are killed while sessions move between them."""

from __future__ import annotations

import os
import random
import time

import pytest

from cluster import wait_for
from durable import Node, Side, everybody, first_times, knows_all, move, pump, settle


@pytest.mark.parametrize("nodes", ["journal", "fsync"], indirect=True)
def test_kill_9_while_sessions_move(nodes: list[Node]) -> None:
    """FT-21, FT-29, MQ-05, MQ-06, MQ-11: publishers and subscribers go from node to node under load, and nodes are killed: no
    acknowledged message is lost, and none with QoS 2 comes twice. A message that was not acknowledged at the moment of a
    kill may miss the sessions of the node that was killed: nobody knows of them until it is back."""
    rounds = int(os.environ.get("SEDGE_KILLS", "10")) // 2
    rng = random.Random(1)
    publishers, subscribers, where = everybody(nodes, rng)
    pairs = list(zip(publishers, subscribers, strict=True))
    sides: list[Side] = [*subscribers, *publishers]
    excused: dict[str, set[int]] = {subscriber.name: set() for subscriber in subscribers}
    moves = 0
    for _ in range(rounds):
        until = time.monotonic() + 0.4 + 0.2 * rng.random()
        while time.monotonic() < until:
            for publisher in publishers:
                if len(publisher.open) < 10:
                    publisher.publish()
            for side in sides:
                assert pump(side), f"{side.name}: the connection was ended"
            if rng.random() < 0.2:
                move(rng.choice(sides), rng.choice(nodes), where)
                moves += 1
        victim = rng.choice(nodes)
        for publisher, subscriber in pairs:
            if where[subscriber.name] is victim:
                excused[subscriber.name] |= {number for number, _ in publisher.open.values()}
        victim.kill()
        victim.start()
        wait_for("it is linked again", lambda: all(knows_all(node) for node in nodes), 30)
        for side in sides:
            if where[side.name] is victim:
                while pump(side):
                    pass
                side.connect(victim)
    settle(sides, lambda: not any(publisher.open for publisher in publishers), lambda: [(p.name, p.open) for p in publishers])

    def missing() -> dict[str, set[int]]:
        found = {s.name: set(range(p.next)) - set(s.got) - excused[s.name] for p, s in pairs}
        return {name: numbers for name, numbers in found.items() if numbers}

    settle(sides, lambda: not missing(), missing)
    for side in sides:
        move(side, rng.choice(nodes), where)
    settle(sides, lambda: True, lambda: None)
    for publisher, subscriber in pairs:
        if publisher.qos == 2:
            twice = {number: [at for at, got in enumerate(subscriber.got) if got == number] for number in subscriber.got}
            twice = {number: at for number, at in twice.items() if len(at) > 1}
            assert not twice, f"{subscriber.name}: messages came twice, each as one of {len(subscriber.got)}: {twice}"
        assert first_times(subscriber.got), f"{subscriber.name}: nothing came"
    lost = sum(len(excused[s.name] - set(s.got)) for s in subscribers)
    print(f"\n{rounds} kills, {moves} moves, {sum(p.next for p in publishers)} messages, {lost} of those under way at a kill not delivered")
