"""`sedge up --nodes 4 --upstream mosquitto,nats,hivemq,rabbitmq`: four makes are one service to clients that know nothing of them."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import paho.mqtt.client as paho
import pytest

from broker import ONLY_311
from client import Client
from cluster import HOST, Cluster, free_base, wait_for
from mqttwire import V5, V311, T, Will

MIXED = ("mosquitto", "nats", "hivemq", "rabbitmq")
COUNT = 20
PERSISTENT = {"session_expiry_interval": 300}


def not_installed(binary: Path) -> list[str]:
    """Those of the four makes that `sedge bench compare` does not find on this machine."""
    listed = subprocess.run([str(binary), "bench", "compare"], capture_output=True, text=True, check=True, timeout=120).stdout
    found = {line.split()[0] for line in listed.splitlines() if line.split()[1:2] == ["installed"]}
    return [make for make in MIXED if make not in found]


@pytest.fixture(scope="module")
def behind() -> list[int]:
    """The ports of the brokers, by node."""
    port, _, _ = free_base(len(MIXED))
    return list(range(port, port + len(MIXED)))


@pytest.fixture(scope="module")
def mixed(binary: Path, behind: list[int], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """The four nodes and the brokers behind them, shared by the tests of this file, which break nothing."""
    missing = not_installed(binary)
    if missing and "SEDGE_MAKES" not in os.environ:
        pytest.skip(f"SKIP: not installed: {', '.join(missing)}; ./test makes brings them")
    assert not missing, f"check/makes/install has not brought {missing}"
    running = Cluster(
        binary, tmp_path_factory.mktemp("mixed") / "data", len(MIXED), "--upstream", ",".join(MIXED), "--upstream-port", str(behind[0]))
    yield running
    running.stop()


def at(port: int, name: str, version: int = V5, **options: object) -> Client:
    """A connected client."""
    client = Client(HOST, port, version, timeout=20)
    client.connect(name, **options)
    return client


def test_each_node_is_ready_and_says_which_protocol_its_broker_has(mixed: Cluster) -> None:
    """FT-02: the output of `sedge up` names the make behind each node, and each node knows its broker's protocol."""
    rows = [line.split() for line in mixed.output().splitlines() if line.startswith("node-")]
    assert [row[4] for row in rows] == list(MIXED), mixed.output()
    for node, make in enumerate(MIXED):
        upstream = mixed.status(node)["upstream"]
        assert (upstream["up"], upstream["protocol"]) == (True, "3.1.1" if make in ONLY_311 else "5.0"), (make, upstream)
        assert make in upstream["version"].lower() and any(sign.isdigit() for sign in upstream["version"]), (make, upstream)
        # Every node says it of all others.
        listed = mixed.api(0, "topology?node=*")["nodes"]
        assert upstream["version"] in [one["broker"] for one in listed if one["name"] == f"node-{node + 1}"], listed


def connected(stack: ExitStack, port: int, version: int, name: str) -> paho.Client:
    """A Paho client with its loop running, until the stack is left."""
    client = paho.Client(paho.CallbackAPIVersion.VERSION2, client_id=name, protocol=paho.MQTTProtocolVersion(version))
    client.connect(HOST, port)
    client.loop_start()
    stack.callback(client.loop_stop)
    stack.callback(client.disconnect)
    wait_for(f"{name} is connected", client.is_connected, 20)
    return client


@pytest.mark.parametrize("qos", [1, 2])
@pytest.mark.parametrize("version", [V311, V5])
def test_publications_of_each_node_come_once_and_in_order_to_all(mixed: Cluster, version: int, qos: int) -> None:
    """FT-02, IL-02, MQ-05, MQ-06: a Paho client at each node publishes, and one at each node has all of it, as it was published."""
    top = f"mixed/{version}/{qos}"
    got: list[dict[str, list[str]]] = [{} for _ in MIXED]
    granted: list[object] = []
    with ExitStack() as stack:
        for node, port in enumerate(mixed.ports()):
            reader = connected(stack, port, version, f"reader-{version}-{qos}-{node}")
            reader.on_subscribe = lambda _c, _u, _mid, codes, _p: granted.append(codes[0].value)
            reader.on_message = lambda _c, _u, one, node=node: (
                got[node].setdefault(one.topic, []).append(f"{one.qos}:{one.payload.decode()}"))
            reader.subscribe(f"{top}/#", qos)
        wait_for("all have subscribed", lambda: len(granted) == len(MIXED), 20)
        assert granted == [qos] * len(MIXED)
        for node, port in enumerate(mixed.ports()):
            writer = connected(stack, port, version, f"writer-{version}-{qos}-{node}")
            for number in range(COUNT):
                writer.publish(f"{top}/{node}", str(number), qos).wait_for_publish(20)
        wanted = {f"{top}/{node}": [f"{qos}:{number}" for number in range(COUNT)] for node in range(len(MIXED))}
        wait_for("all have all", lambda: all(sum(map(len, one.values())) >= COUNT * len(MIXED) for one in got), 20)
    assert got == [wanted] * len(MIXED)


def kept(port: int, version: int, topic: str) -> list[tuple[bytes, bool]]:
    """The retained messages of a topic, as a new subscriber at this port gets them."""
    probe = at(port, "probe", version)
    probe.subscribe(topic, qos=1)
    probe.ping()
    found = [(got.payload, got.retain) for got in probe.inbox if got.type == T.PUBLISH]
    probe.disconnect()
    return found


@pytest.mark.parametrize("node", range(len(MIXED)), ids=MIXED)
def test_retained_messages_of_each_node_are_set_and_cleared_everywhere(mixed: Cluster, behind: list[int], node: int) -> None:
    """IL-13, MQ-09: all nodes give them to 3.1.1 and 5.0 clients, and all brokers to clients of their own."""
    topic = f"mixed/kept/{node}"
    places = [(port, version) for port in mixed.ports() for version in (V311, V5)]
    places += [(port, V311) for port in behind]

    def everywhere(wanted: list[tuple[bytes, bool]]) -> None:
        def agree() -> bool:
            return all(kept(*place, topic) == wanted for place in places)

        wait_for(f"all {len(places)} places have {wanted}", agree, 30)

    writer = at(mixed.ports()[node], f"keeper-{node}")
    for value in (b"first", b"second"):
        writer.publish(topic, value, qos=1, retain=True)
        everywhere([(value, True)])
    writer.publish(topic, b"", qos=1, retain=True)
    everywhere([])
    writer.disconnect()


@pytest.mark.parametrize("node", range(len(MIXED)), ids=MIXED)
@pytest.mark.parametrize("version", [V311, V5])
def test_the_will_of_a_client_of_each_node_comes_once_to_all(mixed: Cluster, version: int, node: int) -> None:
    """IL-14: the client is lost without a DISCONNECT."""
    top = f"mixed/will/{version}/{node}"
    readers = [at(port, f"heir-{version}-{node}-{number}", version) for number, port in enumerate(mixed.ports())]
    for reader in readers:
        reader.subscribe(f"{top}/#", qos=2)
    at(mixed.ports()[node], f"mortal-{version}-{node}", version, will=Will(f"{top}/gone", b"lost", 2)).drop()
    for reader in readers:
        got = reader.message()
        assert (got.topic, got.payload, got.qos) == (f"{top}/gone", b"lost", 2)
    fence = at(mixed.ports()[node], f"fence-{version}-{node}", version)
    fence.publish(f"{top}/fence", b"after", qos=2)
    for reader in readers:
        assert reader.message().payload == b"after", "the will came twice"
        reader.disconnect()
    fence.disconnect()


def test_a_session_takes_its_queue_from_make_to_make(mixed: Cluster) -> None:
    """FT-22, MQ-11: at each node it gets, once and in order, the messages that were published while its client was away."""
    writer = at(mixed.port, "author")
    session = at(mixed.port, "wanderer", clean=False, props=PERSISTENT)
    session.subscribe("mixed/move", qos=2)
    for turn in range(1, len(MIXED) + 1):
        session.drop()
        for number in range(COUNT):
            writer.publish("mixed/move", f"{turn}:{number}", qos=1 + turn % 2)
        session = at(mixed.ports()[turn % len(MIXED)], "wanderer", clean=False, props=PERSISTENT)
        assert session.connack and session.connack.session_present
        assert [session.message().payload.decode() for _ in range(COUNT)] == [f"{turn}:{number}" for number in range(COUNT)]
        session.nothing()
    session.disconnect()
    at(mixed.port, "wanderer").disconnect()


def test_a_shared_group_has_members_at_all_makes(mixed: Cluster) -> None:
    """MQ-14: each message goes to one member, and each member gets some."""
    members = [at(port, f"member-{node}") for node, port in enumerate(mixed.ports())]
    for member in members:
        member.subscribe("$share/g/mixed/shared", qos=1)
    writer = at(mixed.port, "giver")
    for number in range(80):
        writer.publish("mixed/shared", str(number), qos=1)
    got: list[list[int]] = [[] for _ in members]

    def all_there() -> bool:
        for member, mine in zip(members, got, strict=True):
            member.ping()
            while any(one.type == T.PUBLISH for one in member.inbox):
                mine.append(int(member.message().payload))
        return sum(map(len, got)) >= 80

    wait_for("all are there", all_there, 20)
    assert sorted(number for mine in got for number in mine) == list(range(80))
    assert all(got), got
