"""What one client may take of the memory of all nodes."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from client import Client, ClientError
from cluster import HOST, Cluster, metric, resident_kib
from durable import Node
from mqttwire import V5


def limited(make_node: Callable[..., Node], lines: str) -> Node:
    """A node with these lines for [limits]."""
    node = make_node("memory", shards=1)
    node.stop()
    node.extra = f"[limits]\n{lines}"
    node.start()
    return node


def test_long_filters_fill_no_memory(make_cluster: Callable[..., Cluster]) -> None:
    """SEC: one client asks for 300 filters of 60 KB; it gets 4 MiB of them, and no node keeps more."""
    cluster = make_cluster(2)
    before = [resident_kib(pid) for pid in cluster.pids]
    client = Client(HOST, cluster.port, V5, timeout=10)
    client.connect("greedy")
    granted = 0
    for number in range(300):
        reasons = client.try_subscribe(f"{number}/" + "x" * 60_000).reasons
        granted += reasons[0] < 0x80
    assert granted == (4 << 20) // (60_000 + 256 + len("10/"))
    assert metric(cluster.http, "sedge_subscriptions_over_quota_total") == 300 - granted
    assert metric(cluster.http, "sedge_subscription_bytes") <= 4 << 20
    grown = [resident_kib(pid) - was for pid, was in zip(cluster.pids, before)]
    assert max(grown) < 40 * 1024, grown


def test_long_client_ids_and_many_sessions_are_refused(make_node: Callable[..., Node]) -> None:
    """SEC: 0x85 for the one, 0x97 for the other; who has a session and who wants none are let in."""
    node = limited(make_node, "max_sessions = 3\n")
    with pytest.raises(ClientError, match="0x85"):
        node.client("x" * 1_025)
    node.client("x" * 1_024).drop()
    for name in ("a", "b"):
        node.client(name).drop()
    with pytest.raises(ClientError, match="0x97"):
        node.client("c")
    node.client("a").drop()
    node.client("guest", clean=True, props={}).drop()
    assert metric(node.http, "sedge_sessions_over_quota_total") == 2


def test_sessions_of_anonymous_clients_end(make_node: Callable[..., Node]) -> None:
    """SEC: a client that nobody knows is told that its session is kept for a week at most."""
    node = make_node("memory")
    client = Client(HOST, node.port, V5, timeout=10)
    answer = client.connect("for-ever", clean=False, props={"session_expiry_interval": 0xFFFF_FFFF})
    assert answer.props["session_expiry_interval"] == 7 * 86_400
