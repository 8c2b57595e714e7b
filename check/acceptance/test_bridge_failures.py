"""Failures of bridges between brokers elsewhere, by the number of the issue: none of them happens between brokers behind nodes."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from broker import Sidecar
from client import Client
from cluster import HOST, free_base, get, metric, resident_kib, wait_for
from mqttwire import V5, V311, T

Pair = list[Sidecar]


@pytest.fixture
def pair(binary: Path, tmp_path: Path) -> Iterator[Pair]:
    """Two nodes, each before a Mosquitto that keeps its sessions and messages over its end."""
    made = []
    for number in range(2):
        kept = tmp_path / f"kept{number}"
        kept.mkdir()
        made.append(Sidecar(binary, tmp_path / f"node{number}", "persistence true", f"persistence_location {kept}/", "autosave_on_changes true",
                            "autosave_interval 1", upstream='grace = "30s"\n'))
    for node, other in zip(made, reversed(made), strict=True):
        node.seeds = [f"{HOST}:{other.cluster}"]
    try:
        for node in made:
            node.broker.start()
            node.start()
        wait_for("they know each other", lambda: all(knows(node) for node in made), 30)
        yield made
    finally:
        for node in made:
            node.stop()
            node.broker.stop()


def knows(node: Sidecar) -> bool:
    """Whether this node is linked to the other one, and in step with it."""
    members = get(f"http://{HOST}:{node.http}/api/v1/cluster")["members"]
    links = [member["link"] for member in members if member["link"]]
    return len(members) == 2 and len(links) == 1 and bool(links[0]["synced"])


def at(port: int, name: str, version: int = V5) -> Client:
    """A connected client."""
    client = Client(HOST, port, version, timeout=20)
    client.connect(name)
    return client


def kept(node: Sidecar, topic: str) -> list[bytes]:
    """The payloads that the broker itself has retained at this topic."""
    probe = at(node.broker.port, "")
    probe.subscribe(topic, qos=0)
    probe.ping()
    found = [got.payload for got in probe.inbox if got.type == T.PUBLISH]
    probe.disconnect()
    return found


def test_a_retained_message_that_is_cleared_while_a_broker_is_away_is_cleared_there_too(pair: Pair) -> None:
    """mosquitto#1040: the broker comes back with the old value in its store."""
    near, far = pair
    writer = at(near.port, "writer")
    writer.publish("kept/cleared", b"old", qos=1, retain=True)
    writer.publish("kept/changed", b"old", qos=1, retain=True)
    for topic in ("kept/cleared", "kept/changed"):
        wait_for("the far broker has it", lambda at=topic: kept(far, at) == [b"old"])
    assert far.broker.process
    far.broker.process.terminate()  # it saves what it has
    far.broker.process.wait(20)
    writer.publish("kept/cleared", b"", qos=1, retain=True)
    writer.publish("kept/changed", b"new", qos=1, retain=True)
    far.broker.start()
    wait_for("the far broker has the new value", lambda: kept(far, "kept/changed") == [b"new"], 30)
    wait_for("the far broker has cleared it", lambda: kept(far, "kept/cleared") == [], 30)


@pytest.mark.parametrize("version", [V311, V5])
def test_retained_messages_stay_retained_on_their_way_to_another_broker(pair: Pair, version: int) -> None:
    """vernemq#1420, emqx#1293: a later subscriber at the other node gets it with the retain flag, and the other broker keeps it."""
    near, far = pair
    at(near.port, "writer", version).publish("flag/kept", b"value", qos=1, retain=True)
    wait_for("the far broker keeps it", lambda: kept(far, "flag/kept") == [b"value"])
    reader = at(far.port, "reader", version)
    reader.subscribe("flag/#", qos=1)
    got = reader.message(timeout=20)
    assert (got.topic, got.payload, got.retain) == ("flag/kept", b"value", True)


def test_retain_as_published_and_no_local_hold_across_brokers(pair: Pair) -> None:
    """emqx#11672, emqx#17481, mosquitto#3584: flag as published for a client that asks for it, cleared for one that does not, and nothing comes back."""
    near, far = pair
    wants, plain, writer = at(far.port, "wants"), at(far.port, "plain"), at(near.port, "writer")
    wants.subscribe(("rap/#", 0x09))  # QoS 1, Retain As Published
    plain.subscribe("rap/#", qos=1)
    writer.subscribe(("rap/#", 0x05))  # QoS 1, No Local
    writer.publish("rap/x", b"live", qos=1, retain=True)
    assert wants.message(timeout=20).retain, "asked for"
    assert not plain.message(timeout=20).retain, "not asked for"
    at(far.port, "other").publish("rap/end", b"end", qos=1)
    assert writer.message(timeout=20).topic == "rap/end", "its own publication does not come back"


def test_a_bridge_between_the_brokers_makes_no_loop(binary: Path, tmp_path: Path) -> None:
    """mosquitto#1467, #2921, #3011: somebody bridges the brokers both ways, too: a message that is published once is seen a bounded number of times,
    and each broker comes to rest."""
    far = Sidecar(binary, tmp_path / "far")
    near = Sidecar(binary, tmp_path / "near", "connection around", f"address {HOST}:{far.broker.port}", "topic loop/# both 1", "remote_clientid around")
    near.seeds, far.seeds = [f"{HOST}:{far.cluster}"], [f"{HOST}:{near.cluster}"]
    try:
        for node in (far, near):
            node.broker.start()
            node.start()
        wait_for("they know each other", lambda: knows(near) and knows(far), 30)
        wait_for("the bridge is there", lambda: "as around (" in far.broker.log.read_text(), 20)
        direct = [at(node.broker.port, f"direct-{number}") for number, node in enumerate((near, far))]
        readers = [at(node.port, f"reader-{number}") for number, node in enumerate((near, far))]
        for client in [*direct, *readers]:
            client.subscribe("loop/#", qos=1)
        writer = at(near.port, "writer")
        counts = [Counter[bytes]() for _ in (*direct, *readers)]
        # One round after another: a message that went in circles would have the time of all later rounds to come again.
        for round_ in range(5):
            for number in range(20):
                writer.publish("loop/x", f"{round_}-{number}".encode(), qos=1)
            for count, client in zip(counts, [*direct, *readers], strict=True):
                while len(count) < 20 * (round_ + 1):
                    count[client.message(timeout=20).payload] += 1
        for count, client in zip(counts, [*direct, *readers], strict=True):
            client.ping()
            count.update(got.payload for got in client.inbox if got.type == T.PUBLISH)
            # The way through the nodes and the way over the bridge: two copies of each at most.
            assert max(count.values()) <= 2, count
    finally:
        for node in (near, far):
            node.stop()
            node.broker.stop()


def test_the_state_of_the_broker_is_told_as_it_is(pair: Pair) -> None:
    """mosquitto#1510: status, metric and readiness follow a broker that goes and comes several times, also within a moment, and are right at the
    end of each."""
    near = pair[0]

    def told() -> tuple[object, float]:
        return near.upstream()["up"], metric(near.http, "sedge_upstream_up")

    for _ in range(3):
        near.broker.kill()
        wait_for("it is away", lambda: told() == (False, 0.0), 20)
        near.broker.start()
        wait_for("it is back", lambda: told() == (True, 1.0), 20)
    # Faster than anybody looks.
    near.broker.kill()
    near.broker.start()
    reader = at(near.port, "reader")
    reader.subscribe("state", qos=1)
    reader.publish("state", b"served", qos=1)
    assert reader.message(timeout=20).payload == b"served"
    wait_for("whoever serves is told to be there", lambda: told() == (True, 1.0), 2)


def test_what_waits_for_a_broker_has_a_limit(pair: Pair) -> None:
    """mosquitto#1729: a broker stands still and a client publishes without an end: the node drops messages beyond its limit, counts it, and does
    not grow; QoS 1 goes on when the broker does."""
    near = pair[0]
    assert near.process
    writer = at(near.port, "writer")
    before = resident_kib(near.process.pid)
    near.broker.signal(signal.SIGSTOP)
    try:
        for _ in range(4_000):
            writer.publish("flood/0", bytes(64 * 1024), qos=0)
        wait_for("more than its limit was dropped", lambda: metric(near.http, "sedge_upstream_dropped_total") > 1_000, 30)
        grown = resident_kib(near.process.pid) - before
        assert grown < 160 * 1024, f"{grown} KiB for 250 MiB; the limit is 64 MiB"
    finally:
        near.broker.signal(signal.SIGCONT)
    reader = at(near.port, "reader")
    reader.subscribe("flood/1", qos=1)
    at(near.port, "other").publish("flood/1", b"after", qos=1)
    assert reader.message(timeout=30).payload == b"after"


def test_what_a_broker_has_not_acknowledged_is_sent_again(pair: Pair) -> None:
    """mosquitto#2176: the broker takes publications and dies before it acknowledges them: it gets them again in its next life, and the
    publisher its acknowledgements."""
    near = pair[0]
    writer = at(near.port, "writer")
    near.broker.signal(signal.SIGSTOP)
    for number in range(20):
        writer.start_publish("again", str(number).encode(), qos=1)
    wait_for("they are on their way", lambda: near.upstream()["unacknowledged"] == 20, 20)
    near.broker.kill()
    near.broker.log.write_text("")
    near.broker.start()
    wait_for("the broker has acknowledged them", lambda: near.upstream()["unacknowledged"] == 0, 30)
    log = near.broker.log.read_text()
    assert sum("Received PUBLISH from writer" in line and "'again'" in line for line in log.splitlines()) == 20, log
    assert sorted(writer.expect(T.PUBACK, timeout=20).pid for _ in range(20)) == list(range(1, 21))


def test_a_healthy_broker_with_a_small_window_gets_everything(binary: Path, tmp_path: Path) -> None:
    """mosquitto#2362: a broker with a window of five messages that stands still every now and then: nothing with QoS 1 sticks, and all
    of it comes in order."""
    node = Sidecar(binary, tmp_path / "node", "max_inflight_messages 5", upstream='grace = "30s"\n')
    try:
        node.broker.start()
        node.start()
        reader, writer = at(node.port, "reader"), at(node.port, "writer")
        reader.subscribe("window/#", qos=2)
        got: list[int] = []
        for round_ in range(5):
            if round_ % 2:
                node.broker.signal(signal.SIGSTOP)
            for number in range(100):
                writer.start_publish(f"window/{number % 2}", str(100 * round_ + number).encode(), qos=1)
            if round_ % 2:
                wait_for("they wait for the broker", lambda: node.upstream()["unacknowledged"], 20)
                node.broker.signal(signal.SIGCONT)
            got += [int(reader.message(timeout=30).payload) for _ in range(100)]
            for _ in range(100):
                writer.expect(T.PUBACK, timeout=20)
        for parity in range(2):
            mine = [number for number in got if number % 2 == parity]
            assert mine == sorted(mine) and len(mine) == 250
        wait_for("nothing sticks", lambda: node.upstream()["unacknowledged"] == node.upstream()["expected"] == 0, 20)
        reader.nothing()
    finally:
        node.stop()
        node.broker.stop()


def test_what_waits_for_a_broker_survives_its_node(binary: Path, tmp_path: Path) -> None:
    """vernemq#2098: messages wait at a node whose broker is away, for a client that is away; node and broker are killed, and what was
    acknowledged comes all the same, out of the node's journal."""
    node = Sidecar(binary, tmp_path / "node", upstream='grace = "30s"\n', durability="journal")
    try:
        node.broker.start()
        node.start()
        reader = node.client("reader")
        reader.subscribe("disk", qos=2)
        reader.drop()
        writer = at(node.port, "writer")
        for number in range(50):
            writer.publish("disk", str(number).encode(), qos=1 + number % 2)
        node.broker.kill()
        node.kill()
        node.broker.start()
        node.start()
        again = node.client("reader")
        assert [int(again.message(timeout=20).payload) for _ in range(50)] == list(range(50))
        again.nothing()
    finally:
        node.stop()
        node.broker.stop()


def test_what_is_not_installed_is_named_before_anything_is_started(binary: Path, tmp_path: Path) -> None:
    """FT-02: `sedge up --upstream` with makes that this machine does not have names each of them and where to get it."""
    port, http, links = free_base(3)
    environment = os.environ | {make: str(tmp_path / "none") for make in ("HIVEMQ_HOME", "MOQUETTE_HOME", "ARTEMIS_HOME")}
    command = [str(binary), "up", "--nodes", "4", "--port", str(port), "--http-port", str(http), "--cluster-port", str(links),
               "--data-dir", str(tmp_path / "data"), "--upstream"]
    found = subprocess.run([*command, "mosquitto,hivemq,moquette,artemis"], env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert found.returncode != 0
    for words in ("hivemq is not installed: no ", "HIVEMQ_HOME", "moquette is not installed: no ", "artemis is not installed: no "):
        assert words in found.stderr, found.stderr
    assert not (tmp_path / "data" / "node-1" / "upstream").exists(), "no broker was started"
    found = subprocess.run([*command, "mosquitto,mosquito"], env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert found.returncode != 0 and '"mosquito"' in found.stderr and "mochi" in found.stderr, found.stderr


def test_several_makes_are_one_service(make_cluster) -> None:  # noqa: ANN001
    """FT-02, IL-08: brokers of all makes that are installed here serve 3.1.1 and 5.0 clients as one."""
    programs = {"mosquitto": "mosquitto", "nats": "nats-server", "mochi": "mochi"}
    path = f"{os.environ['PATH']}:/usr/sbin:/usr/local/sbin:/usr/local/bin"
    makes = [make for make, program in programs.items() if shutil.which(program, path=path)]
    if len(makes) < 2:
        pytest.skip(f"fewer than two makes are installed: {makes}")
    port, _, _ = free_base(len(makes))
    cluster = make_cluster(len(makes), "--upstream", ",".join(makes), "--upstream-port", str(port))
    for round_, version in enumerate((V311, V5)):
        readers = [at(port, f"reader-{round_}-{number}", version) for number, port in enumerate(cluster.ports())]
        for reader in readers:
            reader.subscribe("m/#", qos=1)
        for number, port_ in enumerate(cluster.ports()):
            writer = at(port_, f"writer-{round_}-{number}", version)
            for count in range(5):
                writer.publish(f"m/{number}", str(count).encode(), qos=1)
        for reader in readers:
            seen: dict[str, list[bytes]] = {}
            for _ in range(5 * len(makes)):
                got = reader.message(timeout=20)
                seen.setdefault(got.topic, []).append(got.payload)
            assert seen == {f"m/{number}": [str(count).encode() for count in range(5)] for number in range(len(makes))}
            reader.nothing()
