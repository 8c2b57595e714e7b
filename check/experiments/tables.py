"""The experiments S-a to S-d, S-f and S-g of the sources in small, and a row of brokers of several makes: each a function that measures and returns a table."""

from __future__ import annotations

import functools
import itertools
import os
import tempfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from bench import NATIVE, NODES, SIDECARS, SINGLE, Bench, Restarted, killed

# Makes of brokers that five are taken from, in this order; Mosquitto is there again where fewer are installed.
MAKES = ("mosquitto", "moquette", "rabbitmq", "hivemq", "artemis", "mochi", "nats")
FAILOVER = """
name = "failover"
until = "ack"
window = 20
persistent = true
reconnect = true
ping_ms = {ping_ms}
keep_alive_s = 5
interval_ms = 100

[[publishers]]
count = {count}
topic = "bench/failover/{{i}}"

[[subscribers]]
count = {count}
filter = "bench/failover/{{i}}"
"""
QOS_2_IN_0_OUT = ("--qos", "2", "--subscribe-qos", "0")


@dataclass(frozen=True)
class Size:
    """How big the experiments are."""

    # Numbers of pairs by the time between two messages of each, in ms.
    pairs: tuple[tuple[int, tuple[int, ...]], ...] = ((100, (50, 52, 100, 102)), (1_000, (250, 999, 1_000, 2_000)))
    seconds: float = 4
    clients: int = 200
    settle: float = 5
    qos: tuple[int, ...] = (1, 2)
    makes: tuple[str, ...] = ()


SMALL = Size(pairs=((100, (4, 6)),), seconds=0.6, clients=8, settle=0.2, qos=(2,))


@dataclass
class Site:
    """The program and the size, and the results that were measured already."""

    bench: Bench
    size: Size
    memory: dict[object, Any] = field(default_factory=dict)

    def sweep(self, *where: str) -> dict[int, dict[str, Any]]:
        """The rounds of all numbers of pairs, by number."""
        if where not in self.memory:
            found = {}
            for interval, pairs in self.size.pairs:
                words = ("sweep", "--pairs", ",".join(map(str, pairs)), "--interval", interval, "--repeat", 1, "--placement", "leastconn")
                report = self.bench(*words, "--duration", self.size.seconds, "--warmup", 1, *where)
                found.update({size["pairs"]: size["rounds"][0] for size in report["sizes"]})
            self.memory[where] = found
        known: dict[int, dict[str, Any]] = self.memory[where]
        return known

    def failover(self, *words: object, qos: Iterable[object] = ("--qos", 1), clients: int = 0, ping_ms: int = 2_000) -> Any:
        """A run of so many pairs whose clients go elsewhere when their node is gone, or has not answered a ping by the next."""
        count = clients or self.size.clients
        with tempfile.NamedTemporaryFile("w", suffix=".toml") as file:
            file.write(FAILOVER.format(count=count, ping_ms=ping_ms))
            file.flush()
            return self.bench("run", file.name, *qos, *words)


def loaded(table: Callable[[Site], str]) -> Callable[[Site], str]:
    """Says below a table how busy the machine was."""

    @functools.wraps(table)
    def measured(site: Site) -> str:
        before = os.getloadavg()[0]
        text = table(site)
        return f"{text}\n\nLoad average of the machine before {before:.1f}, after {os.getloadavg()[0]:.1f}."

    return measured


def rows(head: list[str], lines: Iterable[list[object]]) -> str:
    """A table in Markdown."""
    marks = ["---"] + ["--:"] * (len(head) - 1)
    return "\n".join("| " + " | ".join(map(str, line)) + " |" for line in [head, marks, *lines])


def ms(micros: float) -> str:
    """Microseconds as milliseconds."""
    return f"{micros / 1e3:.1f}" if micros < 1e5 else f"{micros / 1e3:,.0f}"


@loaded
def s_a(site: Site) -> str:
    """Pairs of clients: throughput, latency and jitter."""
    lines: list[list[object]] = []
    names = (("4 nodes before Mosquittos", SIDECARS), ("Mosquitto alone", SINGLE), ("4 nodes without", NATIVE))
    for name, where in names:
        for pairs, one in site.sweep(*where).items():
            opened, latency, jitter = one["open"], one["open"]["latency_us"], one["open"]["jitter_us"]
            times = [ms(latency[key]) for key in ("mean", "stddev", "max")] + [ms(jitter[key]) for key in ("min", "p90", "max")]
            lost = opened["lost"] + one["closed"]["lost"]
            lines.append([name, pairs, f"{one['per_client_per_s']:.1f}", *times, f"{lost} of {opened['expected'] + one['closed']['expected']:,}"])
    lines += [
        ["source: 4 nodes", "50 / 2,000", "265.7 / 233.3", "3.4", "", "42", "0.04 to 6.2", "11 to 15", "14.7 to 33.8", ""],
        ["source: Mosquitto alone", "", "", "", "", "9.8", "", "", "", ""],
    ]
    head = ["", "Pairs", "Messages per s and client", "Latency, ms: mean", "deviation", "worst", "Jitter, ms: least", "p90", "most", "Lost"]
    intervals = "; ".join(f"{', '.join(f'{one:,}' for one in pairs)} pairs: every {interval} ms" for interval, pairs in site.size.pairs)
    return f"""### S-a: pairs

A topic for each pair, published with QoS 2, subscribed with QoS 0, 32 bytes; all subscribers connect, then all publishers, each to the node with the fewest clients,
so that both clients of each pair are at one node only where four divides the pairs. Messages per second and client: one at a time, each as soon as the last is acknowledged.
Latency and jitter: at a fixed interval ({intervals}; the source: every 10 ms). One round of {site.size.seconds:g} s.

{rows(head, lines)}"""


def mean(values: Iterable[float]) -> float:
    """Their mean; 0 of none."""
    kept = list(values)
    return sum(kept) / len(kept) if kept else 0.0


def throughput(found: Any) -> tuple[float, float, float, float]:
    """Deliveries per second before the fault, and from two seconds after it on; the worst second; seconds without any delivery."""
    figures = found["series"]
    bins, at = figures["egress"], found["faults"][0]["at_s"]
    edge, end = int(at / figures["bin_s"]), int((found["phases"][3]["seconds"] + found["measure_s"]) / figures["bin_s"])
    before, after = bins[10:edge], (bins + [0] * end)[edge:end]
    seconds = [sum(after[first:first + 10]) for first in range(len(after) - 9)]
    return 10 * mean(before), 10 * mean(after[20:]), min(seconds, default=0), sum(not one for one in after) / 10


@loaded
def s_b(site: Site) -> str:
    """Two of four nodes are killed: throughput over time."""
    at, seconds = 4 * site.size.seconds / 2, 6 * site.size.seconds
    course = ("--warmup", 1, "--duration", seconds, "--drain", 20)
    closed = ("--rate", 0, "--window", 1, "--burst", 1)
    half = max(2, site.size.clients // 4)
    lines: list[list[object]] = []

    def line(name: str, found: Any, lost: bool) -> None:
        before, after, worst, silent = throughput(found)
        change = f"{(after - before) / before * 100:+.1f} %" if before else "-"
        kept = f"{found['lost']} and {found['duplicates']} of {found['expected']:,}" if lost else "not promised"
        lines.append([name, f"{before:,.0f}", f"{after:,.0f}", change, f"{worst:,.0f}", f"{silent:.1f}", kept])

    found = site.failover(*course, *closed, *SIDECARS, *killed((3, 4), at), qos=QOS_2_IN_0_OUT, clients=half)
    line("4 nodes, each client as fast as it can, QoS 2 in, 0 out", found, lost=False)
    found = site.failover("--interval", 100, *course, *SIDECARS, *killed((3, 4), at), clients=half)
    line("4 nodes, every 100 ms, QoS 1", found, lost=True)
    alone = Restarted(5)
    try:
        where = ("--broker", f"127.0.0.1:{alone.port}", "--fault", f"{at}:kill:{alone.process.pid}")
        found = site.failover(*course, *closed, *where, qos=QOS_2_IN_0_OUT, clients=half)
    finally:
        alone.end()
    line("Mosquitto alone, started again after 5 s", found, lost=False)
    lines += [["source: 4 nodes", "", "", "-7.3 %, then stable", "", "", ""], ["source: Mosquitto alone", "", "", "", "0", "5", ""]]
    head = ["", "Deliveries per s before", "from 2 s after", "Change", "Worst second", "Seconds without any", "Lost and twice"]
    return f"""### S-b: nodes C and D are killed under load

{half} pairs; nodes 3 and 4 and their brokers are killed {at:g} s after the measurement began (source: 30 s), which lasts {seconds:g} s. Their clients go to the next address.
They ping every 2 s.

{rows(head, lines)}"""


def share(found: Any, low: float, high: float) -> str:
    """Share of deliveries whose latency in ms lies between both."""
    all_of = found["series"]["latency_us"]
    count = sum(number for _, number in all_of) or 1
    return f"{sum(number for micros, number in all_of if low * 1e3 <= micros < high * 1e3) / count * 100:.1f} %"


@loaded
def s_c(site: Site) -> str:
    """No, one and two nodes are killed as publishing starts: jitter and replay."""
    clients = max(2, site.size.clients // 5)
    lines: list[list[object]] = []
    for name, numbers in (("none", ()), ("one", (3,)), ("two", (3, 4))):
        course = ("--interval", 200, "--warmup", 0, "--duration", 2 * site.size.seconds, "--drain", 20, "--idle", site.size.settle)
        found = site.failover(*course, *SIDECARS, *killed(numbers), clients=clients, ping_ms=200)
        pause = max(found["series"]["worst_pause_us"], default=0)
        shares = [share(found, *edges) for edges in ((0, 3), (3, 200), (200, 1e9))]
        jitter, latency = found["jitter_us"], found["latency_us"]
        kept = f"{found['lost']} and {found['duplicates']} of {found['expected']:,}"
        lines.append([name, ms(jitter["max"]), *shares, ms(latency["max"]), ms(pause), kept])
    lines += [
        ["source: none", "21.5", "", "95 % in 1 to 10 ms", "0 %", "44", "", "0 and 0"],
        ["source: one", "210.7", "76 %", "0 %", "24 %", "", "23.6", "0 and 0"],
        ["source: two", "215.4", "", "50 % in 1 to 25 ms", "50 %", "256.3", "23.6", "0 and 0"],
    ]
    head = ["Nodes killed", "Largest jitter, ms", "Below 3 ms", "3 to 200 ms", "Above", "Longest latency, ms", "Longest pause in a replay, ms", "Lost and twice"]
    return f"""### S-c: {clients} subscribers, nodes killed as publishers start

{clients} pairs (source: 200) with QoS 1 and sessions that stay, a message every 200 ms each for {2 * site.size.seconds:g} s; clients ping every 200 ms and go elsewhere without an answer; {site.size.settle:g} s of silence before
(source: a minute). The nodes and their brokers are killed with the first message. In the source messages came every 10 ms, and those for clients that were away came after its detection of 200 ms.

{rows(head, lines)}"""


def used(found: Any, phase: str, what: str, key: str, gone: tuple[int, ...] = ()) -> str:
    """Mean over the nodes, or brokers, of what each used in a phase but those that are gone by then."""
    names = {f"{what}-{number}" for number in range(1, NODES + 1) if number not in gone}
    of = [one["phases"] for one in found["processes"] if one["name"] in names]
    values = [part[key] for phases in of for part in phases if part["name"] == phase]
    if not values:
        return "-"
    return f"{mean(values) / 1024:.1f}" if key == "rss_kib" else f"{mean(values):.1f}"


@loaded
def s_d(site: Site) -> str:
    """Processor time and memory of nodes and brokers."""
    course = ("--interval", 200, "--duration", 2 * site.size.seconds, "--idle", site.size.settle, "--drain", 20)
    runs = {
        "cluster": site.failover(*course, "--warmup", 1, *SIDECARS, qos=QOS_2_IN_0_OUT),
        "single": site.failover(*course, "--warmup", 1, *SINGLE, qos=QOS_2_IN_0_OUT),
        "killed": site.failover(*course, "--warmup", 0, *SIDECARS, *killed((2, 3)), qos=QOS_2_IN_0_OUT),
    }
    # Subscribing takes a few milliseconds here: too short for a share of a core.
    source = {"idle": ("3", "1.45", "3"), "measure": ("about 8", "3.4", "7.6")}
    names = {"idle": "silent", "measure": "publishing"}
    lines: list[list[object]] = []
    for title, key in (("CPU, %", "cpu_percent"), ("memory, MiB", "rss_kib")):
        for phase, name in names.items():
            gone = (2, 3) if phase == "measure" else ()
            without = {"cluster": (), "killed": gone}
            own = [" + ".join(used(runs[run], phase, what, key, away) for what in ("node", "broker")) for run, away in without.items()]
            lines.append([f"{title}: {name}", own[0], used(runs["single"], phase, "node", key), own[1], *(source[phase] if key == "cpu_percent" else ("", "", ""))])
    lines.append(["memory of the host in the source, MiB", "", "", "", "347 to 355", "270", "349 to 358"])
    head = ["", "Node + broker", "Mosquitto alone", "Node + broker, two killed", "Source: node", "alone", "two killed"]
    return f"""### S-d: processor time and memory

{site.size.clients} pairs, QoS 2 in, 0 out, 32 bytes, a message every 200 ms each (source: 2,000 pairs, every 10 ms). CPU: percent of a core, mean of the nodes and of the brokers
that live; memory: resident, of their processes. Nodes 2 and 3 and their brokers are killed with the first message.

{rows(head, lines)}"""


@loaded
def s_f(site: Site) -> str:
    """Eight and eight clients, the node with two subscribers stops."""
    lines: list[list[object]] = []
    for qos, (name, how) in itertools.product(site.size.qos, (("asked to end", "term"), ("killed", "kill"))):
        course = ("--interval", 20, "--warmup", 0.5, "--duration", 2 * site.size.seconds)
        faults = killed((2,), site.size.seconds / 2, how)
        found = site.failover(*course, "--drain", 20, "--idle", site.size.settle, *SIDECARS, *faults, qos=("--qos", qos), clients=8)
        lines.append([f"QoS {qos}, node and broker are {name}", f"{found['expected']:,}", found["lost"], found["duplicates"], ms(found["latency_us"]["max"])])
    lines.append(["source: the node stops", "", 0, 0, ""])
    return f"""### S-f: 8 publishers, 8 subscribers, and the node with two subscribers stops

A message every 20 ms each for {2 * site.size.seconds:g} s, {site.size.settle:g} s of silence before (source: two minutes). Sessions stay; a publication with QoS 1 may come twice.

{rows(["", "Deliveries", "Lost", "Twice", "Longest latency, ms"], lines)}"""


@loaded
def s_g(site: Site) -> str:
    """The grid of the paper: latency, processor time and memory over the number of pairs."""
    lines: list[list[object]] = []
    cluster, single = site.sweep(*SIDECARS), site.sweep(*SINGLE)
    for pairs in cluster:
        both, alone = cluster[pairs]["open"], single[pairs]["open"]
        node = [f"{used(both, 'measure', 'node', key)} + {used(both, 'measure', 'broker', key)}" for key in ("cpu_percent", "rss_kib")]
        one = [used(alone, "measure", "node", key) for key in ("cpu_percent", "rss_kib")]
        times = [ms(figures["latency_us"][key]) for figures in (both, alone) for key in ("mean", "max")]
        lines.append([pairs, *times, node[0], one[0], node[1], one[1]])
    lines.append(["source, up to 1,000", "below 10", "52", "below 10", "22", "3.65 (peak)", "2.47 (peak)", "below 240 (host)", "21 more (host)"])
    head = ["Pairs", "4 nodes: mean, ms", "worst, ms", "Mosquitto alone: mean, ms", "worst, ms", "CPU of a node + its broker, %", "of Mosquitto alone", "Memory, MiB", "of Mosquitto alone"]
    return f"""### S-g: the grid of the paper

The runs of S-a at a fixed interval. CPU: percent of a core, mean of the four nodes and of the four brokers; memory: resident. The source measured whole boards.

{rows(head, lines)}"""


def makes(site: Site) -> tuple[str, ...]:
    """Five makes that are installed here."""
    if site.size.makes:
        return site.size.makes
    there = site.bench.installed()
    return (*[make for make in MAKES if make in there], *("mosquitto",) * 5)[:5]


@loaded
def row(site: Site) -> str:
    """Five nodes in a row, each before a broker of another make."""
    taken = makes(site)
    lines: list[list[object]] = []
    names: list[str] = []
    for pattern in ("b", "c", "d"):
        # Brokers in Java get slow first seconds.
        course = ("--qos", 1, "--interval", 1_000, "--warmup", 2 * site.size.settle, "--duration", 2.5 * site.size.seconds, "--drain", 30)
        found = site.bench("run", f"pattern-{pattern}", *course, "--recipe", "sedge-row", "--nodes", 5, "--upstream", ",".join(taken))
        nodes = found["site"]["nodes"]
        names = [f"{node['name']} ({node['behind']})" for node in nodes]
        sent = {(link["from"], link["to"]): link["publications"] for link in found["site"]["links"]}
        ways = [(nodes[left]["name"], nodes[left + 1]["name"]) for left in range(4)]
        over = [f"{sent.pop((one, other), 0):,} / {sent.pop((other, one), 0):,}" for one, other in ways]
        kept = [f"{found['expected']:,}", found["lost"], found["duplicates"], found["reordered"]]
        times = [ms(found["latency_us"][key]) for key in ("mean", "max")]
        others = ", ".join(f"{one} to {other}: {count}" for (one, other), count in sorted(sent.items()))
        lines.append([pattern, *kept, *times, *over, others or "none"])
    head = ["Pattern", "Deliveries", "Lost", "Twice", "Out of order", "Probe, ms: mean", "worst", *(f"{one} - {one + 1}" for one in range(1, 5)), "Other links"]
    return f"""### Five makes in a row

{', '.join(names)}: links by hand in a row (`--recipe sedge-row`), overlay mesh, QoS 1, 50 publishers with a message every second and the probe. Publications over each link in
both directions, from left to right and back, warm-up included.

{rows(head, lines)}"""


@loaded
def mixed(site: Site) -> str:
    """Pairs over a row of five makes."""
    taken = makes(site)
    lines: list[list[object]] = []
    for pairs, one in site.sweep("--recipe", "sedge-row", "--nodes", "5", "--upstream", ",".join(taken)).items():
        opened, closed = one["open"], one["closed"]
        kept = [f"{opened[key] + closed[key]:,}" for key in ("expected", "lost")]
        times = [ms(opened["latency_us"][key]) for key in ("mean", "p99", "max")]
        lines.append([pairs, f"{one['per_client_per_s']:.1f}", *times, *kept])
    head = ["Pairs", "Messages per s and client", "Latency, ms: mean", "p99", "worst", "Deliveries", "Lost"]
    return f"""### Pairs over five makes

The runs of S-a over the row of {', '.join(taken)}: both clients of a pair are at one node only where five divides the pairs.

{rows(head, lines)}"""


ALL: dict[str, Callable[[Site], str]] = {"s-a": s_a, "s-b": s_b, "s-c": s_c, "s-d": s_d, "s-f": s_f, "s-g": s_g, "row": row, "mixed": mixed}
