"""Tombstones: the memory that nodes have of cleared topics."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable

import pytest
from client import Client
from cluster import HOST, Cluster, metric, resident_kib, wait_for
from durable import Node
from mqttwire import V5

LONG = "x" * 60_000


def test_clearing_what_never_was_costs_nothing(make_cluster: Callable[..., Cluster]) -> None:
    """MQ-07: an empty retained publication to a topic without a value is remembered by no node; one that clears a value is, by all."""
    cluster = make_cluster(3)
    before = [resident_kib(pid) for pid in cluster.pids]
    client = Client(HOST, cluster.port, V5, timeout=10)
    client.connect("clearer")
    for number in range(1_000):
        client.publish(f"{number}/{LONG}", "", qos=1, retain=True)
    client.publish("real", "value", qos=1, retain=True)
    ports = [cluster.http + node for node in range(3)]
    wait_for("all have the value", lambda: all(metric(port, "sedge_retained_messages") == 1 for port in ports))
    client.publish("real", "", qos=1, retain=True)
    wait_for("all have cleared it", lambda: all(metric(port, "sedge_retained_tombstones") == 1 for port in ports))
    assert all(metric(port, "sedge_retained_tombstone_bytes") == len("real") + 256 for port in ports)
    grown = [resident_kib(pid) - was for pid, was in zip(cluster.pids, before)]
    assert max(grown) < 30 * 1024, f"{grown} KiB more for 57 MiB of topics"


def test_cleared_topics_have_a_quarter_of_the_room(make_node: Callable[..., Node]) -> None:
    """MQ-07: long topics that had values weigh what they take; status and metrics show it; the journal stays in proportion."""
    node = make_node("journal", shards=1)
    node.stop()
    node.extra = "[limits]\nmax_retained_bytes = \"4MiB\"\n"
    node.start()
    client = node.client("a")
    for number in range(100):
        client.publish(f"{number}/{LONG}", "value", qos=1, retain=True)
        client.publish(f"{number}/{LONG}", "", qos=1, retain=True)
    assert metric(node.http, "sedge_retained_tombstone_bytes") <= 1 << 20
    assert metric(node.http, "sedge_retained_tombstones") == 17
    assert metric(node.http, "sedge_retained_tombstones_crowded_out_total") == 83
    said = subprocess.run(
        [str(node.binary), "status", "--api", f"http://{HOST}:{node.http}"], capture_output=True, text=True, timeout=20, check=True).stdout
    assert "17 cleared topics" in said
    node.kill()
    node.start()
    assert metric(node.http, "sedge_retained_tombstones") == 17


def test_topics_that_all_nodes_have_cleared_are_forgotten(
    make_cluster: Callable[..., Cluster], monkeypatch: pytest.MonkeyPatch,
) -> None:
    """MQ-07: once nodes have found twice that they agree, cleared topics take no memory; while a member is away, they do."""
    monkeypatch.setenv("SEDGE_LIMITS__RETAINED_TOMBSTONES_AGREED", "1s")
    monkeypatch.setenv("SEDGE_CLUSTER__COMPARE", "200ms")
    cluster = make_cluster(3)
    client = Client(HOST, cluster.port, V5, timeout=10)
    client.connect("clearer")
    ports = [cluster.http + node for node in range(3)]

    def clear(topic: str) -> None:
        client.publish(topic, "value", qos=1, retain=True)
        wait_for("all have the value", lambda: all(metric(port, "sedge_retained_messages") == 1 for port in ports))
        client.publish(topic, "", qos=1, retain=True)
        wait_for("all have cleared it", lambda: all(metric(port, "sedge_retained_messages") == 0 for port in ports))

    clear("first")
    wait_for("all have forgotten it", lambda: all(metric(port, "sedge_retained_tombstones") == 0 for port in ports), 30)
    assert all(metric(port, "sedge_retained_tombstones_agreed_total") == 1 for port in ports)

    os.kill(cluster.pids[2], signal.SIGKILL)
    ports.pop()
    wait_for("its death is known", lambda: all(metric(port, "sedge_members_dead") == 1 for port in ports), 30)
    clear("second")
    rounds = [metric(port, "sedge_retained_comparisons_total") for port in ports]
    wait_for("they have compared ten times more", lambda: all(
        metric(port, "sedge_retained_comparisons_total") >= was + 10 for port, was in zip(ports, rounds)), 30)
    assert [metric(port, "sedge_retained_tombstones") for port in ports] == [1, 1], "a member may bring the value back"
