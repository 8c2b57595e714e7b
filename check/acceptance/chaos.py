"""Faults of a cluster in namespaces, by kind, and their effects on the clients of a `Swarm`."""

from __future__ import annotations

import itertools
import random
import re
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from urllib.error import URLError

from netns import Islands
from swarm import RETRY_AFTER, Swarm

# How long a cluster may take to be whole again after a fault.
HEAL_SECONDS = 40.0
# How long sessions may be on the move when everything else is whole.
MOVE_SECONDS = 8.0


MOVING = " sessions on the move"


class NotWhole(Exception):
    """The cluster did not come back to its state before a fault."""


class Chaos:
    """Breaks and mends; every choice comes from the seed."""

    def __init__(self, islands: Islands, swarm: Swarm, rng: random.Random) -> None:
        self.islands, self.swarm, self.rng = islands, swarm, rng
        self.kinds: dict[str, Callable[[], None]] = {
            "kill": self.kill, "double": self.double, "rush": self.rush, "stop": self.stop, "pause": self.pause, "blink": self.blink,
            "partition": self.partition, "cut": self.cut, "oneway": self.oneway, "move": self.move,
            "freeze": self.freeze, "site": self.site, "journal-restart": self.journal_restart,
        }
        self.counts: Counter[str] = Counter()
        # For each node how many sessions it never stops to move.
        self.moving: Counter[int] = Counter()

    def strike(self, kind: str) -> None:
        """One fault, mended at its end."""
        self.counts[kind] += 1
        self.kinds[kind]()

    def kill(self) -> None:
        """kill -9 of one node; it starts again after a while."""
        self._kill(1)

    def double(self) -> None:
        """kill -9 of two nodes at once."""
        self._kill(2)

    def rush(self) -> None:
        """All clients go elsewhere at once, and kill -9 of one node while their sessions are on the way."""
        for guest in self.swarm.guests:
            guest.leave(time.monotonic())
        self.swarm.note("all go elsewhere")
        self.swarm.run(RETRY_AFTER + self.rng.uniform(0.0, 0.03))
        self._kill(1)

    def _kill(self, count: int) -> None:
        victims = self.rng.sample(range(self.islands.count), count)
        self.swarm.note(f"kill {victims}")
        self.islands.kill(*victims)
        self.swarm.run(self.rng.uniform(0.2, 3.0))
        for victim in victims:
            self.swarm.note(f"start {victim}")
            self.islands.start(victim)

    def stop(self) -> None:
        """SIGTERM of one node; it starts again."""
        victim = self.rng.randrange(self.islands.count)
        self.swarm.note(f"terminate {victim}")
        self.islands.terminate(victim)
        self.swarm.until("it ends", lambda: self.islands.ended(victim), 10)
        self.swarm.run(self.rng.uniform(0.2, 2.0))
        self.swarm.note(f"start {victim}")
        self.islands.start(victim)

    def pause(self) -> None:
        """SIGSTOP for longer than it takes to be declared dead."""
        self._pause(self.rng.uniform(3.0, 6.0))

    def freeze(self) -> None:
        """SIGSTOP for 1 to 20 s: before and after the node is declared dead."""
        self._pause(self.rng.choice([1.0, 2.0, 5.0, 20.0]) * self.rng.uniform(0.9, 1.0))

    def journal_restart(self) -> None:
        """kill -9 of one node, which starts again from its journal before or after it is declared dead."""
        victim = self.rng.randrange(self.islands.count)
        self.swarm.note(f"kill {victim}")
        self.islands.kill(victim)
        self.swarm.run(self.rng.uniform(0.2, 2.0))
        self.swarm.note(f"start {victim}")
        self.islands.start(victim)

    def site(self) -> None:
        """kill -9 of all nodes, which start again from their journals: at once, within 3 s, one of them 30 s late, or twice in a row."""
        schedule = self.rng.choice(["at once", "staggered", "one late", "twice"])
        self.swarm.note(f"the power fails, {schedule}")
        everybody = list(range(self.islands.count))
        self.islands.kill(*everybody)
        self.swarm.run(self.rng.uniform(0.1, 2.0))
        self.rng.shuffle(everybody)
        for at, node in enumerate(everybody):
            last = at == len(everybody) - 1
            wait = {"staggered": self.rng.uniform(0.0, 3.0) / len(everybody), "one late": 30.0 * last}.get(schedule, 0.0)
            self.swarm.run(wait)
            self.swarm.note(f"start {node}")
            self.islands.start(node)
        if schedule == "twice":
            self.swarm.run(self.rng.uniform(0.05, 2.0))
            self.swarm.note("the power fails again")
            self.islands.kill(*everybody)
            for node in everybody:
                self.islands.start(node)

    def blink(self) -> None:
        """SIGSTOP for less than that."""
        self._pause(self.rng.uniform(0.05, 0.8))

    def _pause(self, seconds: float) -> None:
        victim = self.rng.randrange(self.islands.count)
        self.swarm.note(f"freeze {victim} for {seconds:.2f} s")
        self.islands.freeze(victim)
        self.swarm.run(seconds)
        self.swarm.note(f"thaw {victim}")
        self.islands.thaw(victim)

    def partition(self) -> None:
        """Two sides that do not reach each other; clients reach both."""
        nodes = list(range(self.islands.count))
        self.rng.shuffle(nodes)
        size = self.rng.randrange(1, len(nodes) // 2 + 1)
        left, right = nodes[:size], nodes[size:]
        self.swarm.note(f"part {left} from {right}")
        pairs = [(a, b) for a in left for b in right]
        self._cut(pairs, self.rng.uniform(1.0, 6.0))

    def cut(self) -> None:
        """Two nodes do not reach each other; all others reach both."""
        a, b = self.rng.sample(range(self.islands.count), 2)
        self.swarm.note(f"cut {a} from {b}")
        self._cut([(a, b)], self.rng.uniform(1.0, 6.0))

    def _cut(self, pairs: list[tuple[int, int]], seconds: float) -> None:
        for a, b in pairs:
            self.islands.cut(a, b)
        self.swarm.run(seconds)
        self.swarm.note("mend")
        for a, b in pairs:
            self.islands.join(a, b)

    def oneway(self) -> None:
        """Packets from one node to another get lost, those the other way round arrive."""
        a, b = self.rng.sample(range(self.islands.count), 2)
        self.swarm.note(f"cut what {a} sends to {b}")
        self.islands.cut_one_way(a, b)
        self.swarm.run(self.rng.uniform(1.0, 6.0))
        self.swarm.note("mend")
        self.islands.join_one_way(a, b)

    def move(self) -> None:
        """Clients lose their connections and go elsewhere, one after the other."""
        self.swarm.note("move clients")
        for _ in range(20):
            self.rng.choice(self.swarm.guests).leave(time.monotonic())
            self.swarm.run(self.rng.uniform(0.0, 0.1))

    def wants(self, node: int) -> list[str]:
        """Differences of a node from its state before the fault: members, links, copies, or something on the move."""
        try:
            members = self.islands.api(node, "cluster")["members"]
            status = self.islands.api(node, "status")
        except (OSError, URLError) as error:
            return [f"node {node}: {error}"]
        links = [member["link"] for member in members if member["link"]]
        count, wanted = self.islands.count, status["copies_wanted"]
        found = [
            (len(members) != count, f"{len(members)} members"),
            (len(links) != count - 1, f"{len(links)} links"),
            (not all(link["synced"] for link in links), "links not in step"),
            (status["copies"] != wanted, f"{status['copies']} of {wanted} copies"),
            (status["moving"] > self.moving[node], f"{status['moving']}{MOVING}"),
            (status["orphaned"], f"{status['orphaned']} nodes orphaned"),
        ]
        return [f"node {node}: {text}" for wrong, text in found if wrong]

    def all_want(self) -> list[str]:
        """Differences of the cluster from its state before the fault."""
        return [want for node in range(self.islands.count) for want in self.wants(node)]

    def heal(self) -> None:
        """Waits until all nodes are there, linked, with all copies, and nothing is on the move."""
        began = moving_since = time.monotonic()
        while wants := self.all_want():
            now = time.monotonic()
            if now - began > HEAL_SECONDS:
                raise NotWhole(f"not whole {HEAL_SECONDS:.0f} s after the fault: {'; '.join(wants)}")
            if not all(want.endswith(MOVING) for want in wants):
                moving_since = now
            elif now - moving_since > MOVE_SECONDS:
                self.swarm.note(f"never ends: {'; '.join(wants)}")
                for node in range(self.islands.count):
                    self.moving[node] = self.islands.api(node, "status")["moving"]
            self.swarm.run(0.1)


def gist(lines: list[str]) -> list[str]:
    """Of lines one after the other that differ in numbers only the first and the last, and how many they are."""
    runs = [list(run) for _, run in itertools.groupby(lines, key=lambda line: re.sub(r"(?<= )[\d.]+", "", line))]
    return [run[0] if len(run) == 1 else f"{len(run)} from {run[0]} to {run[-1]}" for run in runs]


@dataclass
class Verdict:
    """Messages that the clients were owed and did not get, or got twice, or in the wrong order."""

    published: int = 0
    acknowledged: int = 0
    delivered: int = 0
    lost: list[str] = field(default_factory=list)
    twice: list[str] = field(default_factory=list)
    disordered: list[str] = field(default_factory=list)
    sessions: list[str] = field(default_factory=list)
    stuck: list[str] = field(default_factory=list)
    moving: int = 0
    never_whole: str = ""
    refused: Counter[int] = field(default_factory=Counter)
    repeated: int = 0
    without_dup: int = 0

    def is_clean(self) -> bool:
        """Whether nothing is wrong."""
        return not (self.lost or self.twice or self.disordered or self.sessions or self.stuck or self.moving
                    or self.never_whole)

    def __str__(self) -> str:
        head = (f"{self.published} published, {self.acknowledged} acknowledged, {self.delivered} delivered; lost {len(self.lost)}, "
                f"QoS 2 twice {len(self.twice)}, out of order {len(self.disordered)}, sessions lost {len(self.sessions)}, "
                f"never acknowledged {len(self.stuck)}; QoS 1 repeated {self.repeated} ({self.without_dup} without DUP), "
                f"refused {dict(self.refused)}")
        head += f"; moves that never end: {self.moving}" if self.moving else ""
        head += f"; {self.never_whole}" if self.never_whole else ""
        parts = [("lost", self.lost), ("twice", self.twice), ("out of order", self.disordered), ("session lost", self.sessions),
                 ("never acknowledged", self.stuck)]
        return "\n".join([head, *(f"  {name}: {line}" for name, lines in parts for line in gist(lines)[:20])])


def judge(swarm: Swarm) -> Verdict:
    """Compares, message by message, acknowledged with delivered messages."""
    found = Verdict()
    for publisher in swarm.publishers:
        found.published += publisher.next
        found.acknowledged += len(publisher.acknowledged)
        found.refused.update(publisher.refused.values())
        found.stuck += [f"{publisher.name} {number} {phase}" for number, phase in publisher.open.values()]
    for guest in swarm.guests:
        found.sessions += [f"{guest.name} at {at - swarm.began:.3f}" for at in guest.lost_sessions]
    for subscriber in swarm.subscribers:
        found.delivered += sum(len(numbers) for numbers in subscriber.got.values())
        for publisher in swarm.publishers:
            if subscriber.wants(publisher):
                for number in subscriber.lacks(publisher):
                    at, node = publisher.acknowledged[number]
                    where = [stay for since, stay in subscriber.stays if since <= at][-1:]
                    found.lost.append(f"{publisher.topic} {number} for {subscriber.name} (last seen at {where}), "
                                      f"acknowledged at {at - swarm.began:.3f} by node {node}")
        for topic, number, at, dup, qos in subscriber.repeated:
            if qos == 2:
                found.twice.append(f"{topic} {number} at {subscriber.name}, again at {at - swarm.began:.3f}, "
                                   f"first at {subscriber.got[topic][number] - swarm.began:.3f}, DUP {dup}")
            else:
                found.repeated += 1
                found.without_dup += not dup
        for topic, number, before, at in subscriber.disordered:
            found.disordered.append(f"{topic} {number} after {before} at {subscriber.name}, {at - swarm.began:.3f}")
    return found
