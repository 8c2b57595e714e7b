"""A node beside a broker reads its traffic off the wire (docs/own-broker.md, "Off the wire")."""

from __future__ import annotations

import json
import os
import socket
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from broker import Sidecar
from client import Client
from cluster import HOST, get, metric, wait_for
from mqttwire import V5, V311, Will
from netns import ip

Make = Callable[..., list[Sidecar]]

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="capturing packets takes CAP_NET_RAW")


@pytest.fixture
def beside(binary: Path, tmp_path: Path) -> Iterator[Make]:
    """Makes brokers and a cluster of nodes beside them, and starts all."""
    made: list[Sidecar] = []

    def make(count: int, *lines: str, settings: str = "") -> list[Sidecar]:
        nodes = [Sidecar(binary, tmp_path / f"node{number}", *lines, upstream=f'mode = "sniff"\n{settings}') for number in range(count)]
        made.extend(nodes)
        for node in nodes:
            node.seeds = [f"{HOST}:{other.cluster}" for other in nodes if other is not node]
            node.broker.start()
            node.start()
        for node in nodes:
            wait_for("the node reads along", lambda node=node: node.upstream()["up"], 20)
            wait_for("the nodes are linked", lambda node=node: linked(node) == count - 1, 20)
        return nodes

    yield make
    for node in made:
        node.stop()
        node.broker.stop()


def linked(node: Sidecar) -> int:
    """With how many others a node is in step."""
    members = get(f"http://{HOST}:{node.http}/api/v1/cluster")["members"]
    return sum(bool(member["link"] and member["link"]["synced"]) for member in members)


def direct(node: Sidecar, name: str, version: int = V5, **options: Any) -> Client:
    """A client of the broker: the node is not on its path."""
    client = Client(HOST, node.broker.port, version, timeout=20)
    client.connect(name, **options)
    return client


def read(node: Sidecar) -> dict[str, Any]:
    """The part of the status about the traffic that was read."""
    found = node.upstream()["sniff"]
    assert isinstance(found, dict)
    return {**found, **found["counted"]}


def subscribe(nodes: list[Sidecar], number: int, client: Client, topic: str) -> None:
    """Subscribes at a node's broker, and waits until the other nodes know: a node beside a broker cannot hold its SUBACK."""
    others = [node for node in nodes if node is not nodes[number]]
    before = [routes(node) for node in others]
    client.subscribe(topic, qos=1)
    wait_for("all nodes know", lambda: all(routes(node) > known for node, known in zip(others, before, strict=True)), 20)


def routes(node: Sidecar) -> int:
    """How many routes a node knows."""
    return len(get(f"http://{HOST}:{node.http}/api/v1/routes?limit=1000")["routes"])


def test_untouched_brokers_become_one_service(beside: Make, binary: Path) -> None:
    """FT-03, FW-03: three Mosquittos that nobody has changed, and clients that know nothing of any node: publications of each QoS, by 3.1.1 and
    5.0, reach subscribers at the other brokers, once and in order; what a node gives to its broker is not read as a client's."""
    nodes = beside(3)
    with socket.socket() as probe:
        assert probe.connect_ex((HOST, nodes[0].port)) != 0, "nobody is served by the node"
    readers = [direct(node, f"reader-{number}", V5 if number else V311) for number, node in enumerate(nodes)]
    for number, reader in enumerate(readers):
        subscribe(nodes, number, reader, "room/+/#" if number else "room/+/temp")
    writers = [direct(nodes[0], "writer-0", V311), direct(nodes[2], "writer-2", V5)]
    for number in range(150):
        for writer in writers:
            name = "a" if writer is writers[0] else "b"
            writer.publish(f"room/{name}{number % 3}/temp", f"{number}".encode(), qos=number % 3)
    for reader in readers:
        # The order of a topic's messages is promised for each QoS.
        heard: dict[str, list[int]] = {f"room/{name}{qos}/temp": [] for name in "ab" for qos in range(3)}
        for _ in range(300):
            message = reader.message(timeout=20)
            heard[message.topic].append(int(message.payload))
        assert all(numbers == list(range(int(topic[6]), 150, 3)) for topic, numbers in heard.items()), "once, in order"
        reader.ping()
        assert not [packet for packet in reader.inbox if packet.type.name == "PUBLISH"], "no copy comes back"
    wait_for("all is counted", lambda: [(read(node)["publications"], read(node)["replayed"]) for node in nodes] == [(150, 150), (0, 300), (150, 150)], 20)
    assert all((read(node)["blind"], read(node)["own"]) == (0, 1) for node in nodes)
    # Nobody wants it any more: nothing crosses.
    readers[1].unsubscribe("room/+/#")
    wait_for("the node has read it", lambda: read(nodes[1])["filters"] == 0, 20)
    done = subprocess.run([str(binary), "status", "--api", f"http://{HOST}:{nodes[0].http}"], capture_output=True, text=True, timeout=30, check=True)
    assert "the node reads along" in done.stdout and "0 blind" in done.stdout, done.stdout


def test_wills_sessions_and_refused_clients(beside: Make) -> None:
    """FT-03: the will of a client that is lost goes out; a session that is kept keeps what it wants; what a client says that the broker refuses
    reaches nobody."""
    nodes = beside(2)
    reader = direct(nodes[1], "reader")
    subscribe(nodes, 1, reader, "#")
    lost = direct(nodes[0], "lost", V311, will=Will("will", b"gone", 1))
    lost.drop()
    assert reader.message(timeout=20).payload == b"gone"
    kept = direct(nodes[1], "kept", V311, clean=False)
    kept.subscribe("kept/#", qos=1)
    wait_for("it is known", lambda: read(nodes[1])["filters"] == 2, 20)
    kept.close()
    reader.disconnect()
    wait_for("one session is left", lambda: read(nodes[1])["filters"] == 1, 20)
    direct(nodes[0], "writer").publish("kept/x", b"while away", qos=1)
    wait_for("the broker has it", lambda: read(nodes[1])["replayed"] >= 2, 20)
    back = Client(HOST, nodes[1].broker.port, V311, timeout=20)
    back.connect("kept", clean=False)
    assert back.message(timeout=20).payload == b"while away"


def test_blind_and_encrypted_connections_are_counted(beside: Make, binary: Path, tmp_path: Path) -> None:
    """FT-03: a connection that was there before the node is blind, one with TLS is named in the log, and a configuration with TLS is refused."""
    (node,) = beside(1)
    early = direct(node, "early")
    node.stop()
    node.start()
    wait_for("the node reads along", lambda: node.upstream()["up"], 20)
    early.publish("a", b"unseen", qos=1)
    wait_for("it is blind", lambda: read(node)["blind"] == 1, 20)
    with socket.create_connection((HOST, node.broker.port)) as tls:
        tls.sendall(bytes([22, 3, 1, 0, 200, 1, 0, 0, 196]))
        wait_for("TLS is seen", lambda: read(node)["encrypted"] == 1, 20)
    wait_for("it is in the log", lambda: "speaks TLS with the broker" in node.log.read_text(), 20)
    direct(node, "late").publish("a", b"seen", qos=1)
    wait_for("others are read on", lambda: read(node)["publications"] == 1, 20)
    assert metric(node.http, "sedge_sniff_blind_total") == 2
    config = tmp_path / "wrong.toml"
    config.write_text('[upstream]\naddress = "mqtts://127.0.0.1"\nmode = "sniff"\n')
    done = subprocess.run([str(binary), "config", "check", "-c", str(config)], capture_output=True, text=True, timeout=30, check=False)
    assert done.returncode == 2 and "reads plain TCP only" in done.stderr, done


def test_without_the_right_to_capture_the_node_says_so(binary: Path, tmp_path: Path) -> None:
    """FT-03: a user without CAP_NET_RAW is told what is missing."""
    config = tmp_path / "sniff.toml"
    config.write_text('[upstream]\naddress = "127.0.0.1:9"\nmode = "sniff"\n[cluster]\nport = 0\n[http]\nenabled = false\n')
    tmp_path.chmod(0o755)
    command = ["setpriv", "--bounding-set=-net_raw", "--inh-caps=-net_raw", str(binary), "serve", "-c", str(config)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    assert done.returncode != 0 and "CAP_NET_RAW" in done.stderr, done


@pytest.fixture
def island() -> Iterator[tuple[str, str]]:
    """A network namespace and its address on a wire to this process's."""
    number = os.getpid() % 250
    space, here, there = f"sniff{os.getpid()}", f"10.231.{number}.1", f"10.231.{number}.2"
    ip("netns", "add", space)
    try:
        ip("link", "add", f"sn{os.getpid()}", "type", "veth", "peer", "name", "eth0", "netns", space)
        ip("addr", "add", f"{here}/24", "dev", f"sn{os.getpid()}")
        ip("link", "set", f"sn{os.getpid()}", "up")
        ip("-n", space, "addr", "add", f"{there}/24", "dev", "eth0")
        for device in ("lo", "eth0"):
            ip("-n", space, "link", "set", device, "up")
        yield space, there
    finally:
        ip("netns", "del", space)


def test_clients_on_the_network_are_read(island: tuple[str, str], binary: Path, tmp_path: Path) -> None:
    """FT-03: clients reach the broker over an interface of its machine; messages larger than many packets are put together, none is missed."""
    space, address = island
    inside = ["ip", "netns", "exec", space]
    mosquitto = tmp_path / "mosquitto.conf"
    mosquitto.write_text(f"listener 1883 {address}\nallow_anonymous true\nuser root\n")
    sedge = tmp_path / "sedge.toml"
    sedge.write_text(f'[upstream]\naddress = "{address}"\nmode = "sniff"\n[node]\ndata_dir = "{tmp_path / "data"}"\n[cluster]\nport = 0\n')
    with (tmp_path / "log").open("wb") as log:
        broker = subprocess.Popen([*inside, "/usr/sbin/mosquitto", "-c", str(mosquitto)], stdout=log, stderr=log)
        node = subprocess.Popen([*inside, str(binary), "serve", "-c", str(sedge)], stdout=log, stderr=log)

        def status() -> dict[str, Any]:
            command = [*inside, str(binary), "status", "--json", "--api", "http://127.0.0.1:8080"]
            done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
            found: dict[str, Any] = json.loads(done.stdout)["upstream"] if done.returncode == 0 else {}
            return found

        try:
            wait_for("the node reads along", lambda: status().get("up"), 20)
            for version in (V311, V5):
                client = Client(address, 1883, version, timeout=20)
                client.connect(f"writer-{version}")
                for number in range(40):
                    client.publish("large", bytes([number]) * 150_000, qos=number % 3)
                client.disconnect()
            wait_for("all is read", lambda: status()["sniff"]["counted"]["publications"] == 80, 20)
            counted = status()["sniff"]["counted"]
            assert (counted["blind"], counted["holes"], counted["malformed"], counted["own"]) == (0, 0, 0, 1), counted
        finally:
            for process in (node, broker):
                process.terminate()
                process.wait(20)
