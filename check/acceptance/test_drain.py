"""Nodes are emptied, and restarted one after the other, under load: nothing is lost, and clients go on elsewhere."""

from __future__ import annotations

import json
import os
import random
import subprocess
import time

import pytest

import mqttwire as w
from client import Client, ClientError
from cluster import HOST, wait_for
from durable import DAY, Node, Publisher, Side, Subscriber, everybody, first_times, knows_all, settle
from mqttwire import T
from test_takeover import is_whole

USE_ANOTHER_SERVER = 0x9C
# Sessions without a connection on the node that is emptied.
AWAY = int(os.environ.get("SEDGE_DRAIN_SESSIONS", "200"))


def pump(side: Side) -> w.Packet | bool:
    """Takes the packets that have come. False: the connection has ended; a DISCONNECT, if the node has said why."""
    client, good_bye = side.client, None
    try:
        while True:
            got = client.inbox.popleft() if client.inbox else client._read(time.monotonic() + 0.001)
            if got is None:
                return good_bye or False
            if got.type == T.DISCONNECT:
                good_bye = got
            else:
                side.take(got)
    except ClientError:
        return True


class Load:
    """Publishers and subscribers that go to another node when theirs wants them to, or ends."""

    def __init__(self, nodes: list[Node], rng: random.Random) -> None:
        self.nodes, self.rng = nodes, rng
        self.publishers, self.subscribers, self.where = everybody(nodes, rng)
        self.sides: list[Side] = [*self.subscribers, *self.publishers]
        self.good_byes: list[w.Packet] = []

    def turn(self, shunned: Node | None = None) -> None:
        """Every client publishes and reads once; a client that has lost its connection goes to another node than this one."""
        for publisher in self.publishers:
            if len(publisher.open) < 10:
                publisher.publish()
        for side in self.sides:
            found = pump(side)
            if found is True:
                continue
            if found is not False:
                self.good_byes.append(found)
            side.client.close()
            others = [node for node in self.nodes if node is not shunned]
            self.where[side.name] = self.rng.choice(others)
            side.connect(self.where[side.name])

    def run(self, seconds: float, shunned: Node | None = None) -> None:
        """Turns for a while."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            self.turn(shunned)

    def check(self) -> str:
        """Lets everything arrive; nothing is missing, nothing with QoS 2 came twice, nothing came out of order."""
        pairs = list(zip(self.publishers, self.subscribers, strict=True))
        settle(self.sides, lambda: not any(p.open for p in self.publishers), lambda: [(p.name, p.open) for p in self.publishers])

        def missing() -> dict[str, list[int]]:
            found = {s.name: sorted(set(range(p.next)) - set(s.got)) for p, s in pairs}
            return {name: numbers for name, numbers in found.items() if numbers}

        settle(self.sides, lambda: not missing(), missing)
        settle(self.sides, lambda: True, lambda: None)
        for publisher, subscriber in pairs:
            assert first_times(subscriber.got) == sorted(set(subscriber.got)), f"{subscriber.name}: out of order"
            if publisher.qos == 2:
                assert len(subscriber.got) == len(set(subscriber.got)), f"{subscriber.name}: a message came twice"
        again = sum(len(s.got) - len(set(s.got)) for s in self.subscribers)
        return f"{sum(p.next for p in self.publishers)} messages, {again} repetitions with QoS 1"


def sedge(node: Node, *words: str) -> list[str]:
    """A command line for the API of this node."""
    return [str(node.binary), *words, "--api", f"http://{HOST}:{node.http}"]


def all_whole(nodes: list[Node]) -> bool:
    """Whether all nodes have all their copies and know each other."""
    return all(is_whole(node) for node in nodes) and all(knows_all(node) for node in nodes)


def leave_sessions(node: Node, other: Node) -> list[Subscriber]:
    """Sessions without a connection at this node, each with ten messages; every second one has stopped amid a handshake."""
    away = [Subscriber(f"away-{i}", f"away/{i}", 1 + i % 2) for i in range(AWAY)]
    feeder = other.client("feeder")
    for i, one in enumerate(away):
        one.connect(node)
        if i % 2:
            # QoS 2: received, PUBREC sent, and then gone.
            feeder.publish(one.topic, "0", qos=2)
            got = one.client.expect(T.PUBLISH)
            one.take(got)
        one.client.drop()
    for number in range(10):
        for i, one in enumerate(away):
            if number or not i % 2:
                feeder.publish(one.topic, str(number), qos=one.qos)
    feeder.disconnect()
    return away


@pytest.mark.parametrize("nodes", ["memory", "journal"], indirect=True)
def test_a_node_is_emptied_under_load(nodes: list[Node]) -> None:
    """MQ-05, MQ-06, MQ-11, MQ-14: clients that are connected are told 0x9C and where to go, sessions without a connection move
    with what waits for them, others keep the copies; then the node stops, and nothing is missing."""
    rng = random.Random(int(os.environ.get("SEDGE_SEED", "1")))
    leaver, *others = nodes
    wait_for("everything is copied", lambda: all_whole(nodes), 30)
    away = leave_sessions(leaver, others[0])
    load = Load(nodes, rng)
    # A publisher amid a QoS 2 handshake.
    torn = Publisher("torn", "torn", 2)
    catcher = Subscriber("catcher", "torn", 2)
    catcher.connect(others[0])
    torn.connect(leaver)
    torn.publish()
    torn.client.expect(T.PUBREC)
    torn.client.drop()
    load.run(0.5)
    started = time.monotonic()
    command = subprocess.Popen(sedge(leaver, "drain", "--wait", "--json"), stdout=subprocess.PIPE, text=True)
    while command.poll() is None:
        load.turn(leaver)
    took = time.monotonic() - started
    assert command.stdout
    last = json.loads(command.stdout.read())
    assert command.returncode == 0 and last["state"] == "drained" and last["sessions"] >= AWAY, last
    assert last["sessions_left"] == last["replicas_left"] == 0, last
    references = {f"{HOST}:{node.port}" for node in others}
    assert load.good_byes, "nobody was connected to the node"
    for good_bye in load.good_byes:
        assert good_bye.reason == USE_ANOTHER_SERVER and good_bye.props["server_reference"] in references
    refused = Client(HOST, leaver.port, w.V5).try_connect("late")
    assert refused.reason == USE_ANOTHER_SERVER and set(refused.props["server_reference"].split()) == references
    assert Client(HOST, leaver.port, w.V311).try_connect("late").reason == 3
    wait_for("the refused are gone", lambda: leaver.status()["connections"] == 0)
    status = leaver.status()
    assert status["sessions"] == 0 and not status["ready"], status
    wait_for("the others have copies again", lambda: all(is_whole(node) for node in others), 20)
    held = [node.status()["sessions"] for node in others]
    leaver.stop()
    load.run(0.5, leaver)
    for one in away:
        one.connect(rng.choice(others))
        assert one.client.connack and one.client.connack.session_present, one.name
    torn.connect(rng.choice(others))
    settle([*away, catcher, torn], lambda: not torn.open and catcher.got == [0] and all(len(one.got) >= 10 for one in away),
           lambda: [(one.name, one.got) for one in away if len(one.got) < 10])
    for one in away:
        assert one.got == list(range(10)), f"{one.name}: {one.got}"
    print(f"\n{last['sessions']} sessions left in {took:.2f} s, to {held}; {load.check()}")


@pytest.mark.parametrize("nodes", ["memory"], indirect=True)
def test_emptying_can_be_cancelled_and_gives_up(nodes: list[Node]) -> None:
    """A node serves on when its operator wants it to, and when there is nobody to take its sessions."""
    one, *others = nodes

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(sedge(one, "drain", *words), capture_output=True, text=True, timeout=60, check=False)

    client = one.client("stays")
    client.drop()
    done = run("--wait")
    assert done.returncode == 0 and "drained" in done.stdout, done
    assert Client(HOST, one.port, w.V5).try_connect("early").reason == USE_ANOTHER_SERVER
    assert run("--cancel").returncode == 0
    assert one.status()["ready"]
    again = one.client("stays")
    assert again.connack and again.connack.session_present
    again.disconnect()
    wait_for("its sessions are copied again", lambda: is_whole(one), 20)
    for other in others:
        other.stop()
    wait_for("it is alone", lambda: one.status()["members"] == 1)
    alone = run("--wait")
    assert alone.returncode == 1 and "no other node" in alone.stderr, alone
    assert one.status()["ready"]


@pytest.mark.parametrize("nodes", ["memory"], indirect=True)
def test_an_empty_node_stops_by_itself(nodes: list[Node]) -> None:
    """`--stop`, with and without waiting for it."""
    first, second, third = nodes
    wait_for("everything is copied", lambda: all_whole(nodes), 30)
    keeper = first.client("keeper")
    keeper.subscribe("k", qos=1)
    keeper.drop()
    done = subprocess.run(sedge(first, "drain", "--wait", "--stop", "--json"), capture_output=True, text=True, timeout=60, check=False)
    said = json.loads(done.stdout)
    assert done.returncode == 0 and said["state"] == "drained" and said["stop"] is True, done
    assert first.process
    wait_for("its process has ended", lambda: first.process and first.process.poll() is not None)
    assert first.process.returncode == 0
    third.client("feeder").publish("k", "1", qos=1)
    subprocess.run(sedge(second, "drain", "--stop"), check=True, timeout=60)
    assert second.process
    wait_for("its process has ended", lambda: second.process and second.process.poll() is not None, 30)
    assert second.process.returncode == 0
    last = third.client("keeper", props=DAY)
    assert last.connack and last.connack.session_present
    assert last.expect(T.PUBLISH).payload == b"1"


@pytest.mark.parametrize("empties", [False, True], ids=["stopped", "emptied"])
@pytest.mark.parametrize("nodes", ["memory", "journal"], indirect=True)
def test_nodes_are_restarted_one_after_the_other(nodes: list[Node], empties: bool) -> None:
    """FT-29, MQ-05, MQ-06, MQ-11: each node in turn is stopped with SIGTERM, or emptied before that, and started again, while
    messages of QoS 1 and 2 flow: none is lost."""
    load = Load(nodes, random.Random(int(os.environ.get("SEDGE_SEED", "1"))))
    for victim in nodes:
        while not all_whole(nodes):
            load.turn()
        load.run(0.5)
        if empties:
            command = subprocess.Popen(sedge(victim, "drain", "--wait"), stdout=subprocess.DEVNULL)
            while command.poll() is None:
                load.turn(victim)
            assert command.returncode == 0
        assert victim.process
        victim.process.terminate()
        while victim.process.poll() is None:
            load.turn(victim)
        assert victim.process.returncode == 0
        load.run(0.5, victim)
        victim.start()
    while not all_whole(nodes):
        load.turn()
    load.run(0.5)
    print(f"\n{load.check()}")
