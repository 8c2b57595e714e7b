"""Output of the tools about the whole cluster, from any node, by the names of its nodes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Callable
from typing import Any

from client import Client
from cluster import HOST, Cluster, wait_for
from mqttwire import V5

DAY = {"session_expiry_interval": 86_400}
LISTINGS = ("sessions", "routes", "topology", "status", "retained")


def connected(cluster: Cluster, node: int, name: str, **options: object) -> Client:
    """A client of this node."""
    client = Client(HOST, cluster.ports()[node], V5, timeout=10)
    client.connect(name, **options)
    return client


def tell(cluster: Cluster, *words: str, node: int = 0) -> str:
    """The output of a command that asks this node."""
    command = [str(cluster.binary), *words, "--api", f"http://{HOST}:{cluster.http + node}"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=30)
    return done.stdout if done.returncode == 0 else f"failed: {done.stderr}"


def told(cluster: Cluster, *words: str, node: int = 0) -> dict[str, Any]:
    """The same as a value."""
    found: dict[str, Any] = json.loads(tell(cluster, *words, "--json", node=node))
    return found


def test_listings_speak_for_all_nodes_and_name_them(cluster: Cluster) -> None:
    """OP-07: each listing says the same of the whole cluster at every node, and with a node's name only the entries that the node knows."""
    names = [f"node-{number + 1}" for number in range(3)]
    ids = [cluster.api(node, "status")["node"] for node in range(3)]
    clients = [connected(cluster, node, f"client-{letter}-{node}", props=DAY) for node in range(3) for letter in "ab"]
    for number, client in enumerate(clients):
        client.subscribe(f"rooms/{number}/#", qos=1)
    clients[0].publish("rooms/kept", "on", qos=1, retain=True)

    def connections() -> list[int]:
        return [one["totals"]["connections"] for one in told(cluster, "status")["all_members"]["members"]]

    # The clients by which `sedge up` shows that its cluster works may still be on their way out.
    wait_for("only these are connected", lambda: connections() == [2, 2, 2])
    for node in range(3):
        sessions = told(cluster, "sessions", node=node)
        assert [(one["client"], one["name"]) for one in sessions["sessions"]] == sorted(
            (f"client-{letter}-{at}", names[at]) for at in range(3) for letter in "ab"), sessions
        assert (sessions["total"], sessions.get("next"), sessions.get("silent")) == (6, None, None)
        some = told(cluster, "sessions", "--offset", "1", "--limit", "3", node=node)
        assert [one["client"] for one in some["sessions"]] == ["client-a-1", "client-a-2", "client-b-0"] and some["next"]
        rest = cluster.api(node, f"sessions?node=*&cursor={some['next']}")
        assert [one["client"] for one in rest["sessions"]] == ["client-b-1", "client-b-2"]
        one = told(cluster, "sessions", "--node", names[1], node=node)
        assert [(one["client"], one["node"]) for one in one["sessions"]] == [("client-a-1", ids[1]), ("client-b-1", ids[1])]
        found = told(cluster, "sessions", "--client", "client-b-2", node=node)["sessions"][0]
        assert (found["name"], [one["filter"] for one in found["subscriptions"]]) == (names[2], ["rooms/5/#"])
        routes = told(cluster, "routes", node=node)
        assert sorted((one["name"], one["filter"]) for one in routes["routes"]) == [(names[number // 2], f"rooms/{number}/#") for number in range(6)]
        assert routes["total"] == 6
        shape = told(cluster, "topology", node=node)
        assert [one["name"] for one in shape["nodes"]] == names and len(shape["links"]) == 3, shape
        kept = told(cluster, "retained", node=node)
        assert [one["topic"] for one in kept["messages"]] == ["rooms/kept"]
        elsewhere = told(cluster, "retained", "--node", names[2], node=node)
        assert [one["topic"] for one in elsewhere["messages"]] == ["rooms/kept"]
        status = told(cluster, "status", node=node)
        assert status["name"] == names[node]
        members = status["all_members"]["members"]
        assert [(one["name"], one["totals"]["connections"], one["ready"], one["this"]) for one in members] == [
            (names[at], 2, True, at == node) for at in range(3)], members
        assert all(one["version"] and one["disk_free_bytes"] > 0 for one in members)
        assert all(one["this"] or abs(one["clock_ahead_ms"]) < 1_000 for one in members)
        assert told(cluster, "status", "--node", names[2], node=node)["node"] == ids[2]
        for listing in LISTINGS:
            text = tell(cluster, listing, node=node)
            assert not any(of in text for of in ids) or listing == "status", text
            assert listing == "retained" or all(name in text for name in names), text
        assert f"{names[1]} ({ids[1]})" in tell(cluster, "routes", "--ids", node=node)
    assert "no member is called 'attic'" in tell(cluster, "sessions", "--node", "attic").replace('"', "'")
    kicked = tell(cluster, "kick", "client-a-2")
    assert "at node node-3 was ended" in kicked, kicked
    clients[4].read_until_closed()


def test_a_member_that_does_not_answer_is_named(make_cluster: Callable[..., Cluster]) -> None:
    """OP-07: while a process is stopped the others' listings come within seconds and say whose part is missing; a dead member keeps its name."""
    cluster = make_cluster(3)
    clients = [connected(cluster, node, f"client-{node}") for node in range(3)]
    assert len(clients) == 3
    os.kill(cluster.pids[2], signal.SIGSTOP)
    try:
        # All at the same time: a second later the member is dead, and nobody asks it.
        words = (["sessions", "--json"], ["routes"], ["status"])
        asked = [subprocess.Popen([str(cluster.binary), *each, "--api", f"http://{HOST}:{cluster.http}"], stdout=subprocess.PIPE, text=True) for each in words]
        listed, routes, status = [command.communicate(timeout=20)[0] for command in asked]
    finally:
        os.kill(cluster.pids[2], signal.SIGCONT)
    sessions = json.loads(listed)
    assert [one["client"] for one in sessions["sessions"]] == ["client-0", "client-1"]
    assert sessions["silent"] == ["node-3"]
    assert "no answer in time from node-3" in routes and "no answer in time from node-3" in status, routes + status
    wait_for("it answers again", lambda: "silent" not in told(cluster, "sessions"), 30)
    cluster.kill(2)
    wait_for("its death is shown by name", lambda: any(line.startswith("node-3 ") and "dead for" in line for line in tell(cluster, "status").splitlines()), 20)

