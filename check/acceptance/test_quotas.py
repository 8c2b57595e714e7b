"""Limits of the memory that one client may take of all nodes."""

from __future__ import annotations

import subprocess
from collections.abc import Callable

import pytest
from client import Client, ClientError
from cluster import HOST, Cluster, metric, resident_kib, wait_for
from durable import Node
from mqttwire import V5


def limited(make_node: Callable[..., Node], lines: str, shards: int = 1) -> Node:
    """A node with these lines for [limits]."""
    node = make_node("memory", shards=shards)
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
    """SEC: 0x85 for the one, 0x97 for the other; clients that have a session or want none are let in."""
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


@pytest.mark.parametrize("shards", [1, 3])
def test_all_shards_count_the_sessions_of_a_node_together(make_node: Callable[..., Node], shards: int) -> None:
    """SEC: as many sessions as the limit says, wherever in the node their clients are; one that ends makes room."""
    node = limited(make_node, "max_sessions = 10\n", shards)
    for number in range(10):
        node.client(f"client-{number}").drop()
    for name in ("one", "two", "three"):
        with pytest.raises(ClientError, match="0x97"):
            node.client(name)
    node.client("client-3", clean=True, props={}).drop()
    wait_for("its session has ended", lambda: metric(node.http, "sedge_sessions") == 9)
    node.client("one").drop()
    with pytest.raises(ClientError, match="0x97"):
        node.client("two")


@pytest.mark.parametrize("shards", [1, 3])
def test_all_shards_count_the_sessions_of_a_user_together(make_node: Callable[..., Node], shards: int) -> None:
    """SEC: a user has as many sessions as a user may have, another user has room."""
    node = make_node("memory", shards=shards)
    node.stop()
    users = node.data.parent / f"users-{shards}"
    for flag, name in (("-cb", "anna"), ("-b", "ben")):
        subprocess.run([str(node.binary), "passwd", flag, str(users), name, "secret"], check=True, timeout=20)
    node.extra = f'[auth]\nanonymous = "never"\npassword_file = "{users}"\n[limits]\nmax_sessions_per_user = 4\n'
    node.start()
    client = lambda name, user: node.client(name, username=user, password=b"secret").drop()  # noqa: E731
    for number in range(4):
        client(f"client-{number}", "anna")
    for number in range(4, 8):
        with pytest.raises(ClientError, match="0x97"):
            client(f"client-{number}", "anna")
    client("client-0", "anna")
    client("client-9", "ben")
    assert metric(node.http, "sedge_sessions_over_quota_total") == 4


def test_sessions_of_anonymous_clients_end(make_node: Callable[..., Node]) -> None:
    """SEC: a client that nobody knows is told that its session is kept for a week at most."""
    node = make_node("memory")
    client = Client(HOST, node.port, V5, timeout=10)
    answer = client.connect("for-ever", clean=False, props={"session_expiry_interval": 0xFFFF_FFFF})
    assert answer.props["session_expiry_interval"] == 7 * 86_400
