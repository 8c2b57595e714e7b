"""Nodes that begin: after the power of a whole site, and after a kill that another node has seen to."""

from __future__ import annotations

import json
import signal
import socket
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

import mqttwire as w
from client import Client
from cluster import HOST, metric, wait_for
from durable import DAY, Node, knows_all
from mqttwire import V5, T


@pytest.fixture
def site(binary: Path, tmp_path: Path) -> Iterator[list[Node]]:
    """Three nodes with journals that know each other."""
    made = [Node(binary, tmp_path / f"node{number}", "journal") for number in range(3)]
    for node in made:
        node.seeds = [f"{HOST}:{other.cluster}" for other in made if other is not node]
        node.extra = 'recovery_timeout = "20s"\n'
    try:
        for node in made:
            node.start()
        wait_for("they know each other", lambda: all(knows_all(node) for node in made), 30)
        yield made
    finally:
        for node in made:
            node.stop()


def reasons(node: Node) -> list[str]:
    """Why a node is not ready."""
    try:
        with urllib.request.urlopen(f"http://{HOST}:{node.http}/health/ready", timeout=2):
            return []
    except urllib.error.HTTPError as error:
        found: list[str] = json.loads(error.read())["reasons"]
        return found
    except OSError:
        return []


def test_a_site_without_power_comes_back_with_every_session(site: list[Node]) -> None:
    """FT-26, FT-28, MQ-09: all nodes are killed and start one after the other. A client connects at once to a node that does not own its
    session: it waits, and finds its session with what was acknowledged for it, once."""
    for number, node in enumerate(site):
        sleeper = node.client(f"sleeper-{number}")
        sleeper.subscribe("site/#", qos=2)
        sleeper.drop()
    speaker = site[0].client("speaker", clean=True, props={})
    speaker.publish("site/a", "kept", qos=2)
    for node in site:
        node.kill()
    site[0].spawn()
    wait_for("it says whom it waits for", lambda: any("waits until it has learned" in line for line in reasons(site[0])))
    awaited = site[0].status()["awaited_members"]
    assert isinstance(awaited, list) and len(awaited) == 2
    assert metric(site[0].http, "sedge_awaited_members") == 2
    # The owner of this client's session is not up: the client sends CONNECT and gets no answer yet.
    early = Client(HOST, site[0].port, V5, timeout=20)
    early.send(w.connect(V5, "sleeper-1", clean=False, props=DAY))
    for node in site[1:]:
        node.spawn()
    assert early.expect(T.CONNACK).session_present
    assert early.message().payload == b"kept"
    for number, node in ((0, site[1]), (2, site[2])):
        again = node.client(f"sleeper-{number}")
        assert again.connack and again.connack.session_present
        assert again.message().payload == b"kept"
    early.ping()
    assert not early.inbox


def listens(port: int) -> bool:
    """Whether somebody accepts connections at this port."""
    with socket.socket() as probe:
        return probe.connect_ex((HOST, port)) == 0


def test_a_client_that_gives_up_waiting_takes_its_session_from_nobody(site: list[Node]) -> None:
    """FT-26, MQ-06: a client waits at a node that begins, gives up, and goes to the node of its session. The node that begins drops the
    old connection at once, and so does not claim the session when it lets clients in."""
    walker = site[1].client("walker")
    walker.subscribe("site/#", qos=1)
    walker.drop()
    for node in site:
        node.kill()
    site[0].spawn()
    wait_for("it says whom it waits for", lambda: any("waits until it has learned" in line for line in reasons(site[0])))
    wait_for("it listens", lambda: listens(site[0].port))
    early = Client(HOST, site[0].port, V5, timeout=10)
    early.send(w.connect(V5, "walker", clean=False, props=DAY))
    early.drop()
    # A client that has sent a message behind its CONNECT has not given up: it is done.
    brief = Client(HOST, site[0].port, V5, timeout=10)
    brief.send(w.connect(V5, "brief", clean=True) + w.publish(V5, "site/brief", b"done", qos=1, pid=1))
    wait_for("the node has it", lambda: metric(site[0].http, "sedge_connections") == 1)
    brief.close()
    assert site[0].status()["awaited_members"], "the node had not to wait"
    for node in site[1:]:
        node.spawn()
    wait_for("the owner lets clients in", lambda: listens(site[1].http) and not reasons(site[1]) and listens(site[1].port), 30)
    walker = site[1].client("walker")
    assert walker.connack and walker.connack.session_present
    wait_for("all are ready", lambda: all(knows_all(node) and not reasons(node) for node in site), 30)
    assert walker.message().payload == b"done"
    walker.publish("site/a", "here", qos=1)
    assert walker.message().payload == b"here"


def test_a_will_is_published_once_when_its_node_comes_back(site: list[Node]) -> None:
    """FT-20, FT-29: a node is killed, another one publishes the will of its client, and the node starts again from its journal: the retained
    message that came meanwhile stays."""
    witness = site[1].client("witness", clean=True, props={})
    witness.subscribe("state/#", qos=1)
    dying = site[0].client("dying", clean=True, props={}, will=w.Will("state/dying", b"offline", 1, retain=True))
    assert dying.connack
    site[0].kill()
    assert witness.message().payload == b"offline"
    witness.publish("state/dying", "repaired", qos=1, retain=True)
    assert witness.message().payload == b"repaired"
    site[0].start()
    wait_for("it is back", lambda: all(knows_all(node) for node in site), 30)
    # The node has published the messages of its past before it lets clients in.
    late = site[0].client("late", clean=True, props={})
    late.publish("state/end", "end", qos=1)
    assert witness.message().payload == b"end", "the will came again"
    late.subscribe("state/dying", qos=1)
    assert late.message().payload == b"repaired"


def test_a_session_that_has_ended_elsewhere_does_not_come_back_with_a_journal(site: list[Node]) -> None:
    """FT-20, MQ-09: a node is killed, its client goes on at another node and ends its session there. The journal of the killed node has it still."""
    client = site[0].client("ended")
    client.subscribe("t/#", qos=1)
    client.drop()
    site[0].kill()
    wait_for("it is taken for dead", lambda: all(node.status()["members"] == 2 for node in site[1:]))
    client = site[1].client("ended")
    assert client.connack and client.connack.session_present
    client.disconnect()
    site[2].client("ended", clean=True, props={}).disconnect()
    site[0].start()
    wait_for("it is back", lambda: all(knows_all(node) for node in site), 30)
    for node in site:
        client = node.client("ended")
        assert client.connack and client.connack.session_present == (node is not site[0])
        client.disconnect()


def stand_still(pid: int) -> bool:
    """Whether every thread of a process is stopped: a signal takes a moment to reach those that run."""
    states = [(task / "stat").read_text().rsplit(")", 1)[1].split()[0] for task in Path(f"/proc/{pid}/task").iterdir()]
    return set(states) == {"T"}


def test_a_frozen_node_repeats_nothing_when_it_goes_on(site: list[Node]) -> None:
    """FT-21, MQ-06: a node stands still for longer than it takes to be declared dead. Its client has sent a QoS 2 PUBLISH that the node has not
    read, and repeats it at another node: the subscriber gets it once, also when the node goes on."""
    subscriber = site[2].client("subscriber")
    subscriber.subscribe("load", qos=2)
    publisher = site[0].client("publisher")
    publisher.publish("load", "first", qos=2)
    assert subscriber.message().payload == b"first"
    assert site[0].process
    pid = site[0].process.pid
    site[0].process.send_signal(signal.SIGSTOP)
    wait_for("all its threads stand still", lambda: stand_still(pid))
    try:
        publisher.start_publish("load", "second", qos=2, pid=77)
        wait_for("it is taken for dead", lambda: all(node.status()["members"] == 2 for node in site[1:]))
        again = site[1].client("publisher")
        assert again.connack and again.connack.session_present
        again.start_publish("load", "second", qos=2, pid=77, dup=True)
        assert subscriber.message().payload == b"second"
    finally:
        site[0].process.send_signal(signal.SIGCONT)
    wait_for("it is back", lambda: all(knows_all(node) and not reasons(node) for node in site), 30)
    assert metric(site[0].http, "sedge_node_standstills_total") == 1
    late = site[0].client("late", clean=True, props={})
    late.publish("load", "end", qos=2)
    assert subscriber.message().payload == b"end", "the message came again"


def test_clients_of_a_node_that_was_taken_for_dead_come_back(site: list[Node]) -> None:
    """FT-20, FT-24, MQ-06: a node stands still, and the others take it for dead. When it goes on, it ends the connections of its clients, so that none
    goes on without what it missed; the will that another node has published does not come again."""
    witness = site[1].client("witness", clean=True, props={})
    witness.subscribe("gone", qos=1)
    guest = site[0].client("guest", clean=True, props={}, will=w.Will("gone", b"guest", 1))
    keeper = site[0].client("keeper")
    keeper.subscribe("news", qos=2)
    assert site[0].process
    pid = site[0].process.pid
    site[0].process.send_signal(signal.SIGSTOP)
    wait_for("all its threads stand still", lambda: stand_still(pid))
    try:
        assert witness.message(timeout=10).payload == b"guest"
        witness.publish("news", "meanwhile", qos=2)
    finally:
        site[0].process.send_signal(signal.SIGCONT)
    guest.read_until_closed(timeout=10)
    assert not [got for got in keeper.read_until_closed(timeout=10) if got.type == T.PUBLISH]
    wait_for("it is back", lambda: all(knows_all(node) and not reasons(node) for node in site), 30)
    again = site[0].client("keeper")
    assert again.connack and again.connack.session_present
    assert again.message().payload == b"meanwhile"
    witness.publish("gone", "end", qos=1)
    assert witness.message().payload == b"end", "the will came again"
