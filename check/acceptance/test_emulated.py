"""BM-15: a cluster on the emulated network of `sedge bench net`."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from apart import MQTT, can_make_namespaces
from client import Client
from cluster import wait_for
from emulated import Emulated
from mqttwire import V5

pytestmark = pytest.mark.skipif(
    not (can_make_namespaces() and os.path.exists("/dev/net/tun")),
    reason="SKIP: needs root, the right to make network namespaces, and /dev/net/tun")


@pytest.fixture
def emulated(binary: Path, tmp_path: Path) -> Iterator[Emulated]:
    """Three nodes with 10 Mbit/s and 5 ms between any two."""
    made = Emulated(binary, tmp_path, 3, "--rate", "10mbit", "--delay", "5")
    yield made
    made.stop()


def connected(emulated: Emulated, node: int, client_id: str) -> Client:
    """A raw client at this node."""
    client = Client(emulated.address(node), MQTT, V5, timeout=20)
    client.connect(client_id)
    return client


def test_a_cluster_forms_is_cut_and_heals(emulated: Emulated) -> None:
    """A message crosses after the link's delay; a cut is noticed by both sides; after the healing messages cross again."""
    wait_for("all links", lambda: all(emulated.up(node) == 2 for node in range(3)), 20)
    reader, writer = connected(emulated, 0, "reader"), connected(emulated, 2, "writer")
    reader.subscribe("site/#", qos=1)
    started = time.monotonic()
    writer.publish("site/a", "before", qos=0)
    assert reader.message("before")
    assert time.monotonic() - started >= 0.005, "it cannot have crossed the link in less than its delay"

    emulated.ask("isolate", "3")
    wait_for("both sides notice", lambda: emulated.up(2) == 0 and emulated.up(0) == 1 and emulated.up(1) == 1, 20)
    wait_for("and declare each other dead", lambda: emulated.members(2) == 1 and emulated.members(0) == 2, 20)
    cut = emulated.links()
    assert all(cut[link]["open"] == (3 not in link) for link in cut)
    assert cut[1, 3]["cut"] > 0 and cut[3, 1]["cut"] > 0, "nobody tried"

    emulated.ask("heal")
    wait_for("all links again", lambda: all(emulated.up(node) == 2 for node in range(3)), 40)
    writer.publish("site/a", "after", qos=1)
    assert reader.message("after")
    assert all(link["bytes"] > 0 and link["delay_ms"] == 5 for link in emulated.links().values())


# One publisher at the first node, its subscriber at the second.
ACROSS = """
name = "across"
qos = 1
payload = 100
interval_ms = 10
warmup_s = 1
measure_s = 14
drain_s = 10
[[publishers]]
count = 1
topic = "across"
brokers = "0"
[[subscribers]]
count = 1
filter = "across"
brokers = "1"
"""


def test_a_partition_in_the_middle_of_a_measurement(binary: Path, emulated: Emulated, tmp_path: Path) -> None:
    """`sedge bench fail` cuts and heals the network that it is told of, and without one says which flag is missing."""
    wait_for("all links", lambda: all(emulated.up(node) == 2 for node in range(3)), 20)
    brokers = ",".join(f"{emulated.address(node)}:{MQTT}" for node in range(3))
    (tmp_path / "across.toml").write_text(ACROSS)
    words = [str(binary), "bench", "fail", "--scenario", str(tmp_path / "across.toml"), "--broker", brokers, "--json", "--quiet",
             "--fault", "2:isolate:1", "--fault", "4:heal:"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60)
    assert done.returncode != 0 and "--network" in done.stderr, done.stderr
    done = subprocess.run([*words, "--network", emulated.socket], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    figures = json.loads(done.stdout)
    assert [fault["what"] for fault in figures["faults"]] == ["isolate 1", "heal"], figures["warnings"]
    links = emulated.links()
    assert all(link["open"] for link in links.values())
    assert links[1, 2]["cut"] > 0 and links[2, 3]["cut"] == 0
    # Nothing crosses for two seconds; whether the first node keeps messages that it took meanwhile is not the matter of this test.
    assert figures["fail"]["longest_gap_ms"] >= 1_900 and figures["fail"]["recovered"], figures["fail"]


def test_nothing_is_left_after_the_end(emulated: Emulated) -> None:
    """SIGTERM ends the nodes, then the network; the emulator says what it did."""
    status, notes = emulated.stop()
    assert status == 0 and "packets delivered" in notes
    there = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=True).stdout
    assert not {emulated.namespace(node) for node in range(3)} & {line.split()[0] for line in there.splitlines()}
    assert not os.path.exists(emulated.socket)
    assert all(process.poll() is not None for process in emulated.processes)


def test_a_command_finds_the_network_and_ends_it(binary: Path) -> None:
    """With a command after `--` the network lives as long as that, and `sedge bench net` fails if it does."""
    script = 'test "$SEDGE_NET_NODES" = 2 && for one in $SEDGE_NET_NAMESPACES; do ip netns exec $one true || exit 8; done; ' \
             'test -S "$SEDGE_NET_CONTROL" && echo "$SEDGE_NET_NAMESPACES"; exit 7'
    done = subprocess.run(
        [str(binary), "bench", "net", "--nodes", "2", "--", "sh", "-c", script], capture_output=True, text=True, timeout=30)
    assert "packets delivered" in done.stderr and done.returncode != 0, done.stderr
    there = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=True).stdout
    assert done.stdout.split() and not set(done.stdout.split()) & {line.split()[0] for line in there.splitlines()}


def test_what_a_killed_emulator_left_is_told_and_removed(binary: Path) -> None:
    """`kill -9` leaves namespaces behind; the next network says so, `--clean` removes them."""
    plan = subprocess.Popen([str(binary), "bench", "net", "--nodes", "2", "--name", f"killed{os.getpid()}-"],
                            stdout=subprocess.PIPE, text=True)
    assert plan.stdout
    wait_for("it runs", lambda: "requests at" in plan.stdout.readline())
    plan.kill()
    plan.wait()
    second = subprocess.run([str(binary), "bench", "net", "--nodes", "2", "--", "true"],
                            capture_output=True, text=True, timeout=30)
    assert second.returncode == 0 and f"killed{os.getpid()}-1" in second.stderr and "--clean" in second.stderr
    cleaned = subprocess.run([str(binary), "bench", "net", "--clean"], capture_output=True, text=True, timeout=30)
    assert f"killed{os.getpid()}-2 removed" in cleaned.stdout, cleaned
    again = subprocess.run([str(binary), "bench", "net", "--clean"], capture_output=True, text=True, timeout=30)
    assert "killed" not in again.stdout
