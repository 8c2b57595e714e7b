"""What a node before a broker costs: Mosquitto alone, behind HAProxy as a relay of bytes, and behind a node by TCP and by a Unix socket, in turn."""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench import free_ports
from tables import Site, loaded, rows

# Pairs, topics, messages under way for each publisher, QoS. The loads with five topics are those of pattern a of the source (IL-27).
LOADS = ((20, 20, 8, 0), (20, 20, 8, 1), (20, 20, 8, 2), (100, 100, 4, 1), (100, 100, 1, 0), (100, 100, 1, 1), (50, 5, 1, 0), (50, 5, 1, 1))
LATENCY_QOS = (0, 1)
MOSQUITTO = """
listener {port} 127.0.0.1
listener 0 {folder}/mqtt.sock
allow_anonymous true
set_tcp_nodelay true
max_queued_messages 100000
user root
"""
HAPROXY = """
global
    nbthread 1
defaults
    mode tcp
    timeout connect 5s
    timeout client 1h
    timeout server 1h
listen relay
    bind 127.0.0.1:{own}
    server broker {broker}
"""
ALONE, RELAY, TCP, UNIX = "Mosquitto alone", "HAProxy before it, TCP", "node before it, TCP", "node before it, Unix socket"
RELAY_UNIX = "HAProxy before it, Unix socket"


@dataclass
class Run:
    """One run of the load generator: its report, and the processor time of the broker and of what stands before it, in seconds."""

    report: Any
    broker_s: float
    before_s: float


@contextmanager
def process(command: list[str], **env: str) -> Iterator[int]:
    """A program, while this lasts."""
    started = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env={**os.environ, **env})
    try:
        yield started.pid
    finally:
        started.kill()
        started.wait()


def used(pid: int | None) -> float:
    """Processor time of a process in seconds."""
    if pid is None:
        return 0.0
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class Cost:
    """A Mosquitto, and what stands before it."""

    def __init__(self, site: Site) -> None:
        self.bench, self.seconds = site.bench, site.size.seconds / 2
        self.rounds = 1 if site.size.seconds < 1 else 3
        self.stack = ExitStack()
        self.folder = Path(self.stack.enter_context(tempfile.TemporaryDirectory()))
        self.port = free_ports(1)
        config = self.folder / "mosquitto.conf"
        config.write_text(MOSQUITTO.format(port=self.port, folder=self.folder))
        program = shutil.which("mosquitto", path=f"{os.environ['PATH']}:/usr/sbin")
        if not program:
            sys.exit("mosquitto is missing")
        self.broker = self.stack.enter_context(process([program, "-c", str(config)]))
        self.wait_for(self.port)

    def wait_for(self, port: int) -> None:
        """Waits until a client is served."""
        deadline = time.monotonic() + 20
        probe = [str(self.bench.binary), "pub", "-h", "127.0.0.1", "-p", str(port), "-t", "up", "-n"]
        while subprocess.run(probe, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False).returncode:
            if time.monotonic() > deadline:
                sys.exit(f"nothing serves clients at port {port}")
            time.sleep(0.05)

    def run(self, name: str, *words: object) -> Run:
        """One run of the load generator against Mosquitto with this before it."""
        with ExitStack() as stack:
            port, pid = self.port, None
            if name != ALONE:
                port = free_ports(2)
                pid = stack.enter_context(self.before(name, port, stack))
                self.wait_for(port)
            begun = used(self.broker), used(pid)
            report = self.bench("run", "pairs", "--broker", f"127.0.0.1:{port}", "--duration", self.seconds, "--warmup", self.seconds, *words)
            return Run(report, used(self.broker) - begun[0], used(pid) - begun[1])

    def before(self, name: str, port: int, stack: ExitStack) -> Any:
        """What stands before the broker, at this port."""
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        local = f"{self.folder}/mqtt.sock"
        if name in (RELAY, RELAY_UNIX):
            config = folder / "haproxy.cfg"
            config.write_text(HAPROXY.format(own=port, broker=f"unix@{local}" if name == RELAY_UNIX else f"127.0.0.1:{self.port}"))
            program = shutil.which("haproxy", path=f"{os.environ['PATH']}:/usr/sbin")
            if not program:
                sys.exit("haproxy is missing")
            return process([program, "-db", "-f", str(config)])
        address = f"unix:{local}" if name == UNIX else f"127.0.0.1:{self.port}"
        words = ["serve", "--bind", "127.0.0.1", "--port", str(port), "--cluster-port", str(port + 1), "--http-port", "0"]
        return process([str(self.bench.binary), *words, "--data-dir", str(folder)], SEDGE_UPSTREAM__ADDRESS=address)


def middle(values: list[float], form: str) -> str:
    """The median, and the least and the most."""
    return f"{statistics.median(values):{form}} ({min(values):{form}} to {max(values):{form}})"


def throughput(cost: Cost) -> str:
    """As fast as the window of each client allows."""
    lines: list[list[object]] = []
    for pairs, topics, window, qos in LOADS:
        runs: dict[str, list[Run]] = {name: [] for name in (ALONE, RELAY, TCP, UNIX)}
        for _ in range(cost.rounds):
            for name, kept in runs.items():
                words = ("--publishers", pairs, "--subscribers", pairs, "--topics", topics, "--qos", qos, "--rate", 0, "--window", window)
                kept.append(cost.run(name, *words))
        clients = f"{pairs} pairs" if topics == pairs else f"{topics} topics, {pairs // topics} publishers and {pairs // topics} subscribers each"
        for name, kept in runs.items():
            pace = [run.report["egress_per_s"] for run in kept]
            relative = [one / run.report["egress_per_s"] for one, run in zip(pace, runs[ALONE], strict=True)]
            # Warm-up and measurement are equally long.
            spent = [[getattr(run, whose) * 1e6 / (run.report["egress_per_s"] * 2 * cost.seconds) for run in kept] for whose in ("broker_s", "before_s")]
            micros = [f"{statistics.median(times):.1f}" for times in spent]
            load = f"{clients}, window {window}, QoS {qos}" if name == ALONE else ""
            lines.append([load, name, f"{statistics.median(pace):,.0f}", "" if name == ALONE else middle(relative, ".2f"), micros[0], "" if name == ALONE else micros[1]])
    head = ["Load", "", "Messages per s", "Times Mosquitto alone", "Processor time of a message, µs: Mosquitto", "node or HAProxy"]
    return rows(head, lines)


def latency(cost: Cost) -> str:
    """At 200 messages per second in all."""
    lines: list[list[object]] = []
    for qos in LATENCY_QOS:
        found: dict[str, list[float]] = {name: [] for name in (ALONE, RELAY, RELAY_UNIX, TCP, UNIX)}
        for _ in range(2 * cost.rounds):
            for name, kept in found.items():
                words = ("--publishers", 20, "--subscribers", 20, "--topics", 20, "--qos", qos, "--rate", 200)
                kept.append(cost.run(name, *words).report["latency_us"]["p50"])
        for name, kept in found.items():
            above = [one - alone for one, alone in zip(kept, found[ALONE], strict=True)]
            lines.append([f"QoS {qos}" if name == ALONE else "", name, f"{statistics.median(kept):.0f}", "" if name == ALONE else middle(above, "+.0f")])
    return rows(["", "", "Median latency, µs", "Above Mosquitto alone"], lines)


@loaded
def table(site: Site) -> str:
    """Throughput, processor time and latency."""
    cost = Cost(site)
    try:
        flow, delay = throughput(cost), latency(cost)
    finally:
        cost.stack.close()
    return f"""Pairs of one publisher and one subscriber, a topic each unless fewer topics are named, 32 bytes; clients send as fast as their window of messages under way allows. Mosquitto, the node and the load
generator share the machine. HAProxy, with one thread, only relays bytes. {cost.rounds} rounds, each through all rows of a load; medians, and in brackets the least and the most.

{flow}

20 pairs, 200 messages per second in all. {2 * cost.rounds} rounds.

{delay}"""
