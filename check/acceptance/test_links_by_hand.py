"""Links that operators choose, with Mosquittos behind the nodes (docs/overlays.md, "Links by hand")."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from broker import Sidecar
from client import Client
from cluster import HOST, get, metric, wait_for
from durable import Node
from mqttwire import V5

MANUAL = 'links = "manual"\n'


class Site:
    """Some nodes that know each other."""

    def __init__(self, binary: Path, nodes: list[Node]) -> None:
        self.binary, self.nodes = binary, nodes

    def sedge(self, node: int, *words: str, code: int = 0) -> str:
        """Runs a command against a node's API."""
        command = [str(self.binary), *words, "--api", f"http://{HOST}:{self.nodes[node].http}"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == code, (words, done)
        return done.stdout + done.stderr

    def link(self, node: int, other: int) -> str:
        """`sedge neighbour add`."""
        return self.sedge(node, "neighbour", "add", self.address(other))

    def address(self, node: int) -> str:
        """The cluster port of a node."""
        return f"{HOST}:{self.nodes[node].cluster}"

    def neighbours(self, node: int) -> dict[str, Any]:
        """`sedge neighbours --json`."""
        found: dict[str, Any] = json.loads(self.sedge(node, "neighbours", "--json"))
        return found

    def transfers(self) -> dict[tuple[int, int], int]:
        """Publications that each node has sent to each other one."""
        numbers = {self.address(number): number for number in range(len(self.nodes))}
        found = {}
        for number, node in enumerate(self.nodes):
            for member in get(f"http://{HOST}:{node.http}/api/v1/cluster")["members"]:
                if member["link"] and member["link"]["publications_sent"]:
                    found[(number, numbers[member["address"]])] = member["link"]["publications_sent"]
        return found


@pytest.fixture
def make_site(binary: Path, tmp_path: Path) -> Iterator[Callable[..., Site]]:
    """Makes sites and ends them."""
    made: list[Node] = []

    def make(count: int, before: bool = True, settings: str = "", know: bool = True) -> Site:
        kind: Callable[[Path], Node] = (lambda path: Sidecar(binary, path, "sys_interval 1")) if before else (lambda path: Node(binary, path, "memory"))
        nodes = [kind(tmp_path / f"node{number}") for number in range(count)]
        made.extend(nodes)
        for node in nodes:
            node.seeds = [f"{HOST}:{other.cluster}" for other in nodes if other is not node and know]
            node.extra = MANUAL + settings + node.extra
            if isinstance(node, Sidecar):
                node.broker.start()
            node.start()
        if know:
            wait_for("they know each other", lambda: all(linked(node, count - 1) for node in nodes), 30)
        return Site(binary, nodes)

    yield make
    for node in made:
        node.stop()
        if isinstance(node, Sidecar):
            node.broker.stop()


def linked(node: Node, others: int) -> bool:
    """Whether a node is in step with so many others."""
    members = get(f"http://{HOST}:{node.http}/api/v1/cluster")["members"]
    return sum(bool(member["link"] and member["link"]["synced"]) for member in members) == others


def at(node: Node, name: str) -> Client:
    """A connected client."""
    client = Client(HOST, node.port, V5, timeout=20)
    client.connect(name)
    return client


def test_a_tree_of_five_brokers_carries_what_is_wanted_and_no_more(make_site: Callable[..., Site]) -> None:
    """IL-09, IL-11, IL-23, IL-25: the worked example of the thesis with five Mosquittos, joined by command while they run: what node 5 publishes
    for node 2 takes the links 5-3 and 3-2, once each, and none towards nodes 1 and 4, whose brokers never see it."""
    site = make_site(5)
    for node, other in ((0, 1), (1, 2), (3, 1), (4, 2)):
        site.link(node, other)
    reader, writer = at(site.nodes[1], "reader"), at(site.nodes[4], "writer")
    reader.subscribe("t", qos=1)
    direct = []
    for node in site.nodes:
        assert isinstance(node, Sidecar)
        client = Client(HOST, node.broker.port, V5, timeout=20)
        client.connect("direct")
        client.subscribe("t", qos=0)
        direct.append(client)
    for number in range(50):
        writer.publish("t", str(number).encode(), qos=1)
    assert [reader.message(timeout=20).payload for _ in range(50)] == [str(number).encode() for number in range(50)]
    assert site.transfers() == {(4, 2): 50, (2, 1): 50}
    seen = []
    for client in direct:
        client.ping()
        seen.append(sum(packet.type.name == "PUBLISH" for packet in client.inbox))
    assert seen == [0, 50, 0, 0, 50], "brokers of nodes 1, 3 and 4"
    reader.unsubscribe("t")
    writer.publish("t", b"for nobody", qos=1)
    assert site.transfers() == {(4, 2): 50, (2, 1): 50}
    # The other way round, and one status by command and API.
    far = at(site.nodes[4], "far")
    far.subscribe("back", qos=2)
    at(site.nodes[3], "back").publish("back", b"x", qos=2)
    assert far.message(timeout=20).payload == b"x"
    assert site.transfers() == {(4, 2): 50, (2, 1): 50, (3, 1): 1, (1, 2): 1, (2, 4): 1}
    shown = site.neighbours(1)
    assert shown == get(f"http://{HOST}:{site.nodes[1].http}/api/v1/neighbours")
    assert (shown["links"], shown["agreed"], shown["link_qos"]) == ("manual", True, "as-published")
    chosen = {line["address"]: (line["chosen_here"], line["chosen_there"]) for line in shown["neighbours"]}
    assert chosen == {site.address(0): (False, True), site.address(2): (True, False), site.address(3): (False, True)}
    assert site.nodes[1].status()["neighbours"] == 3
    assert "manual, 3 neighbours" in site.sedge(1, "status")


def handled(port: int) -> int:
    """The publications that a Mosquitto has taken and given, as it says itself."""
    client = Client(HOST, port, V5, timeout=20)
    client.connect("counter")
    said: dict[str, int] = {}
    client.subscribe("$SYS/broker/publish/messages/+", qos=0)
    client.subscribe("$SYS/broker/uptime", qos=0)
    begun = None
    # All values come every second: those of the second before the last one are complete.
    while begun is None or said["$SYS/broker/uptime"] < begun + 3:
        message = client.message(timeout=20)
        said[message.topic] = int(message.payload.split()[0])
        begun = said.get("$SYS/broker/uptime") if begun is None else begun
    client.disconnect()
    return said["$SYS/broker/publish/messages/received"] + said["$SYS/broker/publish/messages/sent"]


def test_five_brokers_do_the_work_of_one_between_them(make_site: Callable[..., Site]) -> None:
    """IL-28: pattern D of the source, all clients of a topic at one of five nodes in a row, and a probe for which each node has a subscriber. One
    Mosquitto alone has at least 4.3 times the work of the busiest of five, counted in publications taken and given."""
    site = make_site(5)
    for node in range(4):
        site.link(node, node + 1)
    brokers = []
    for node in site.nodes:
        assert isinstance(node, Sidecar)
        brokers.append(node.broker)

    def run(*ports: int) -> None:
        addresses = ",".join(f"{HOST}:{port}" for port in ports)
        command = [str(site.binary), "bench", "run", "pattern-d", "--broker", addresses, "--interval", "250", "--warmup", "0", "--messages", "20", "--json"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
        assert done.returncode == 0, done
        report = json.loads(done.stdout)
        assert (report["lost"], report["duplicates"]) == (0, 0) and report["expected"] >= 10_000, report

    run(*(node.port for node in site.nodes))
    busiest = max(handled(broker.port) for broker in brokers)
    alone = handled(brokers[0].port)
    run(brokers[0].port)
    alone = handled(brokers[0].port) - alone
    print("publications taken and given:", alone, "alone,", busiest, "at the busiest of five")
    assert alone > 11_000, "50 publishers with 20 messages each, 10 subscribers for each message"
    assert alone >= 4.3 * busiest, (alone, busiest)


def test_links_are_added_and_removed_while_clients_publish(make_site: Callable[..., Site]) -> None:
    """IL-23, IL-24, IL-29: three brokers are joined, a cycle is closed, and a link is removed from the end that did not choose it, without a message
    that is lost or comes twice; then nothing crosses any more."""
    site = make_site(3)
    readers = [at(node, f"reader-{number}") for number, node in enumerate(site.nodes)]
    for reader in readers:
        reader.subscribe("t/#", qos=1)
    writer = at(site.nodes[0], "writer")
    writer.publish("t/0", b"here", qos=1)
    assert readers[0].message(timeout=20).payload == b"here"
    site.link(0, 1)
    writer.publish("t/1", b"two", qos=1)
    site.link(2, 1)
    for number in range(20):
        writer.publish("t/2", str(number).encode(), qos=2)
    site.link(2, 0)
    for number in range(20, 40):
        writer.publish("t/2", str(number).encode(), qos=2)
    site.sedge(1, "neighbour", "remove", site.address(0))
    for number in range(40, 60):
        writer.publish("t/2", str(number).encode(), qos=2)
    numbers = [str(number).encode() for number in range(60)]
    for number, first in enumerate(([b"two"], [b"two"], [])):
        got = [readers[number].message(timeout=20).payload for _ in range(60 + len(first))]
        assert got == [*first, *numbers], f"node {number}"
        readers[number].nothing()
    site.sedge(1, "neighbour", "remove", site.address(2))
    before = site.transfers()
    writer.publish("t/3", b"no further", qos=1)
    assert [reader.message(timeout=20).payload for reader in (readers[0], readers[2])] == [b"no further"] * 2
    readers[1].nothing()
    after = site.transfers()
    assert {pair for pair in after if after[pair] != before.get(pair)} == {(0, 2)}
    assert site.neighbours(1)["neighbours"] == []


def test_the_file_and_the_command_lead_to_the_same(make_site: Callable[..., Site]) -> None:
    """IL-12, IL-25: two nodes that know nothing of each other are joined by the file of a third and by command; hop QoS is shown."""
    site = make_site(2, before=False, know=False, settings="link_qos = 2\n")
    third = Node(site.binary, site.nodes[0].data.parent / "third", "memory")
    third.extra = MANUAL + f'link_qos = 2\nneighbours = ["{site.address(0)}"]\n'
    site.nodes.append(third)
    try:
        third.start()
        site.sedge(2, "neighbour", "add", site.address(1))
        shown = site.neighbours(2)
        assert [(line["chosen_here"], bool(line["link"])) for line in shown["neighbours"]] == [(True, True)] * 2
        assert shown["link_qos"] == "2"
        reader, writer = at(site.nodes[1], "reader"), at(site.nodes[0], "writer")
        reader.subscribe("t", qos=0)
        writer.publish("t", b"x", qos=0)
        assert reader.message(timeout=20).payload == b"x"
    finally:
        third.stop()


def test_what_cannot_be_is_named(make_site: Callable[..., Site], make_cluster: Callable[..., Any], binary: Path, tmp_path: Path) -> None:
    """IL-25: wrong addresses, wrong settings and a cluster that chooses for itself."""
    site = make_site(1, before=False)
    for words, said in (
        (("add", site.address(0)), "this node's own address"),
        (("add", "nowhere:x"), "the port is not between 1 and 65535"),
        (("add", "10.9.8.7:7883"), "without cluster.key only nodes of this machine are linked"),
        (("remove", f"{HOST}:9"), "there is no such neighbour"),
    ):
        assert said in site.sedge(0, "neighbour", *words, code=1)
    mesh = make_cluster(2)
    done = subprocess.run([str(binary), "neighbours", "--json", "--api", f"http://{HOST}:{mesh.http}"], capture_output=True, text=True, timeout=30, check=True)
    shown = json.loads(done.stdout)
    assert (shown["links"], len(shown["neighbours"])) == ("mesh", 1)
    # The table calls nodes by their names; ids are there on request.
    members = {member["node"]: member["name"] for member in get(f"http://{HOST}:{mesh.http}/api/v1/cluster")["members"]}
    other = shown["neighbours"][0]["node"]
    for flags, called in (([], members[other]), (["--ids"], f"{members[other]} ({other})")):
        command = [str(binary), "neighbours", "--api", f"http://{HOST}:{mesh.http}", *flags]
        lines = subprocess.run(command, capture_output=True, text=True, timeout=30, check=True).stdout.splitlines()
        assert lines[2].split()[:2] == ["NODE", "ADDRESS"] and lines[3].startswith(called + "  "), lines
    command = [str(binary), "neighbour", "add", f"{HOST}:9", "--api", f"http://{HOST}:{mesh.http}"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    assert done.returncode == 1 and 'set cluster.links = "manual"' in done.stderr, done
    for lines, said in (
        ('links = "manual"\noverlay = "skip-graph"', "cluster.links: is \"manual\", but the overlay \"skip-graph\" chooses its links by itself"),
        ('neighbours = ["127.0.0.1"]', "cluster.neighbours: counts only with cluster.links"),
        ("link_connections = 17", "cluster.link_connections: "),
        ('link_order = "any"', 'cluster.link_order: "any" is not "publisher" or "round-robin"'),
        ("link_qos = 3", 'cluster.link_qos: must be "as-published", 0, 1 or 2'),
    ):
        config = tmp_path / "wrong.toml"
        config.write_text(f"[cluster]\n{lines}\n")
        done = subprocess.run([str(binary), "config", "check", "-c", str(config)], capture_output=True, text=True, timeout=30, check=False)
        assert done.returncode == 2 and said in done.stderr, done


@pytest.mark.parametrize("order", ["publisher", "round-robin"])
def test_several_connections_keep_the_order_of_publications(make_site: Callable[..., Site], order: str) -> None:
    """IL-20: two brokers whose nodes share four connections; the publications of each publisher arrive in order while connections
    come and go by command."""
    site = make_site(2, settings=f'link_connections = 4\nlink_order = "{order}"\n')
    site.link(0, 1)
    dialler = min((0, 1), key=lambda number: site.nodes[number].status()["node"])
    wait_for("the connections are there", lambda: connections(site) == [4, 4], 20)
    assert f"QoS as-published, 4 connections a link by {order}" in site.sedge(0, "status")
    assert "up, 4 connections" in site.sedge(1, "neighbours")
    shown = site.neighbours(0)
    assert (shown["link_connections"], shown["link_order"], site.nodes[1].status()["link_order"]) == (4, order, order)
    reader = at(site.nodes[1], "reader")
    reader.subscribe("o/#", qos=1)
    writers = [at(site.nodes[0], f"writer {number}") for number in range(8)]
    heard: dict[str, list[int]] = {f"o/{number}": [] for number in range(len(writers))}
    for turn in range(60):
        for number, writer in enumerate(writers):
            # Large ones are slower than small ones that follow them over another connection.
            padding = b"x" * (60_000 if (turn + number) % 5 == 0 else 0)
            writer.start_publish(f"o/{number}", b"%d " % turn + padding, qos=1)
        if turn == 20:
            site.sedge(dialler, "neighbour", "connections", "2", "--order", "round-robin")
        if turn == 40:
            site.sedge(dialler, "neighbour", "connections", "6", "--order", "publisher")
    for _ in range(60 * len(writers)):
        message = reader.message(timeout=20)
        heard[message.topic].append(int(message.payload.split()[0]))
    assert all(numbers == list(range(60)) for numbers in heard.values()), heard
    wait_for("the command counts", lambda: connections(site) == [6, 6], 20)
    early = sum(metric(node.http, "sedge_links_frames_early_total") for node in site.nodes)
    assert early > 0, "no frame has taken another connection than the one before it"


def connections(site: Site) -> list[int]:
    """How many connections each of two nodes has with the other."""
    links = [site.neighbours(number)["neighbours"][0]["link"] for number in (0, 1)]
    return [link["connections"] if link else 0 for link in links]


