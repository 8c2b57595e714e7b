"""Real failures: kill -9, SIGSTOP, restarts; the rest goes on serving."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

from client import Client
from cluster import HOST, Cluster, alive, get, wait_for
from durable import DAY, Node
from mqttwire import V5, T


def connected(cluster: Cluster, node: int, client_id: str, **options: object) -> Client:
    """A raw client at this node (counted from 0)."""
    client = Client(HOST, cluster.port + node, V5, timeout=10)
    client.connect(client_id, **options)
    return client


def members(cluster: Cluster, node: int) -> int:
    """How many members this node knows."""
    return len(cluster.api(node, "cluster")["members"])


def test_five_nodes_find_each_other(make_cluster: Callable[..., Cluster]) -> None:
    """FT-06: all list five members."""
    cluster = make_cluster(5)
    wait_for("five members at each node", lambda: all(members(cluster, node) == 5 for node in range(5)))


def test_each_node_need_only_know_the_one_before_it(make_node: Callable[..., Node]) -> None:
    """FT-06: five nodes in a chain of seeds; all list five members, and the first and the last serve each other's clients."""
    chain: list[Node] = []
    for _ in range(5):
        seeds = [f"{HOST}:{chain[-1].cluster}"] if chain else []
        chain.append(make_node("memory", seeds=seeds))

    def listed(node: Node) -> int:
        return len(get(f"http://{HOST}:{node.http}/api/v1/cluster")["members"])

    wait_for("five members at each node", lambda: all(listed(node) == 5 for node in chain), 20)
    reader, publisher = chain[4].client("reader"), chain[0].client("publisher")
    reader.subscribe("far/#", qos=1)
    publisher.publish("far/1", b"from the other end", qos=1)
    reader.message(b"from the other end")


def test_survivors_serve_when_a_node_is_killed(make_cluster: Callable[..., Cluster]) -> None:
    """A killed process is noticed at once; publishing goes on meanwhile and nothing hangs."""
    cluster = make_cluster(3)
    reader, speaking = connected(cluster, 0, "survivor"), connected(cluster, 1, "speaker")
    doomed = connected(cluster, 2, "doomed")
    for client in (reader, doomed):
        client.subscribe("life/#", qos=1)
    speaking.publish("life/before", "before", qos=1)
    reader.message("before")
    killed = time.monotonic()
    cluster.kill(2)
    for number in range(200):
        speaking.publish("life/after", str(number), qos=1 + number % 2)
    for number in range(200):
        reader.message(str(number))
    reader.subscribe("life2/#", qos=1)
    speaking.publish("life2/x", "served", qos=1)
    reader.message("served")
    wait_for("two members are left", lambda: all(members(cluster, node) == 2 for node in (0, 1)))
    print(f"\nfound dead {time.monotonic() - killed:.2f} s after the kill")
    assert not any(line["client"] == "doomed" for line in cluster.routes(0))


def test_a_stopped_process_is_declared_dead_and_comes_back(make_cluster: Callable[..., Cluster]) -> None:
    """FT-08: SIGSTOP makes a member fail, SIGCONT brings it back. The route of its client goes on all the time; the client's connection ends, and the
    client finds its session with all that was published meanwhile."""
    cluster = make_cluster(3)
    reader = connected(cluster, 2, "sleeper", clean=False, props=DAY)
    reader.subscribe("sleep/#", qos=1)
    os.kill(cluster.pids[2], signal.SIGSTOP)
    stopped = time.monotonic()
    try:
        wait_for("two members are left", lambda: members(cluster, 0) == 2 and members(cluster, 1) == 2, 20)
        speaking = connected(cluster, 0, "awake")
        speaking.publish("sleep/1", "while the node sleeps", qos=1, allowed=(0,))
        # A node that stood still for less than a second goes on with its clients.
        wait_for("it has stood still for more than a second", lambda: time.monotonic() - stopped > 1.5)
    finally:
        os.kill(cluster.pids[2], signal.SIGCONT)
    wait_for("three members again", lambda: all(members(cluster, node) == 3 for node in range(3)), 30)
    wait_for("the route is back", lambda: any(line["client"] == "sleeper" for line in cluster.routes(0)), 20)
    wait_for("the node is ready", lambda: cluster.is_ready(2), 20)
    assert not [got for got in reader.read_until_closed() if got.type == T.PUBLISH]
    speaking.publish("sleep/2", "awake again", qos=1, allowed=(0,))
    reader = connected(cluster, 2, "sleeper", clean=False, props=DAY)
    assert reader.connack and reader.connack.session_present
    reader.message("while the node sleeps")
    reader.message("awake again")
    speaking.publish("sleep/3", "as before", qos=1, allowed=(0,))
    reader.message("as before")


def test_a_restarted_node_gets_routes_and_retained_messages_anew(
    binary: Path, make_cluster: Callable[..., Cluster],
) -> None:
    """FT-29 in small: kill -9, start again with the same data directory: it knows what the others know."""
    cluster = make_cluster(3)
    reader, speaking = connected(cluster, 0, "constant"), connected(cluster, 1, "constant-pub")
    reader.subscribe("again/#", qos=1)
    speaking.publish("again/kept", "kept", qos=1, retain=True)
    reader.message("kept")
    command = Path(f"/proc/{cluster.pids[2]}/cmdline").read_bytes().split(b"\0")[:-1]
    environment = dict(
        pair.split(b"=", 1) for pair in Path(f"/proc/{cluster.pids[2]}/environ").read_bytes().split(b"\0") if b"=" in pair)
    before = cluster.status(2)
    cluster.kill(2)
    wait_for("the process is gone", lambda: not alive(cluster.pids[2]))
    again = subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stderr=subprocess.DEVNULL)
    try:
        wait_for("the node is ready again", lambda: again.poll() is None and cluster.is_ready(2), 20)
        after = cluster.status(2)
        assert after["node"] == before["node"] and after["incarnation"] > before["incarnation"]
        late = connected(cluster, 2, "late")
        late.subscribe("again/#", qos=1)
        late.message("kept", retain=True)
        late.publish("again/live", "from the restarted node", qos=1)
        reader.message("from the restarted node")
        late.message("from the restarted node")
    finally:
        again.terminate()
        again.wait(10)


def test_children_end_with_sedge_up(make_cluster: Callable[..., Cluster]) -> None:
    """However `sedge up` ends, no node is left behind."""
    for end in (signal.SIGINT, signal.SIGTERM, signal.SIGKILL):
        cluster = make_cluster(3)
        cluster.process.send_signal(end)
        cluster.process.wait(20)
        wait_for(f"all nodes are gone after {end.name}", lambda c=cluster: not any(alive(pid) for pid in c.pids))
