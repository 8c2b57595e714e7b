"""Nodes that find each other without being told of each other."""

from __future__ import annotations

import json
import os
import shutil
import socket
import struct
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from apart import can_make_namespaces
from cluster import HOST, free_base, get, metric, wait_for
from dns import Resolving
from durable import Node
from mqttwire import T
from netns import Islands, ip
from pki import authority, sign
from registries import Etcd, FakeEtcd, FakeKubernetes, RealEtcd, pod, server_context

NAME = os.environ["SEDGE_CLUSTER__NAME"]
KEYS = f"/sedge/{NAME}"  # what the keys of our nodes begin with
GROUP = "239.192.77.1"
KEY = "a key for this test only"

needs_namespaces = pytest.mark.skipif(not can_make_namespaces(), reason="needs root and the right to make network namespaces")

Make = Callable[..., Node]


@pytest.fixture
def make(binary: Path, tmp_path: Path) -> Iterator[Make]:
    """Nodes with settings of their own, below `[cluster]` and in more sections; they start as they are made."""
    made: list[Node] = []

    def one(extra: str, seeds: list[str] | None = None) -> Node:
        node = Node(binary, tmp_path / f"node{len(made)}", "memory")
        node.extra, node.seeds = extra, seeds or []
        made.append(node)
        node.start()
        return node

    yield one
    for node in made:
        node.stop()


@pytest.fixture
def port() -> int:
    """A port for a group that no other test has."""
    return free_base(1)[0]


def members(node: Node) -> set[str]:
    """Addresses of the members that a node lists, its own included."""
    found: dict[str, Any] = get(f"http://{HOST}:{node.http}/api/v1/cluster")
    return {member["address"] for member in found["members"]}


def address(node: Node) -> str:
    """Where other nodes find this one."""
    return f"{HOST}:{node.cluster}"


def list_each_other(nodes: list[Node]) -> bool:
    """Whether each lists all of them and nobody else."""
    everybody = {address(node) for node in nodes}
    return all(members(node) == everybody for node in nodes)


def beacons(port: int, key: str = "") -> str:
    """Settings of a node that finds others by multicast on this machine."""
    secret = f"key = {json.dumps(key)}\n" if key else ""
    return f'{secret}[discovery]\nmulticast = "{GROUP}:{port}"\nmulticast_interface = "{HOST}"\n'


def test_nodes_without_seeds_list_each_other_and_a_late_one_joins(make: Make, port: int) -> None:
    """TR-01, TR-03, EL-01, EL-02: five brokers, none of which is told of another; a sixth joins while messages flow."""
    nodes = [make(beacons(port)) for _ in range(5)]
    wait_for("they list each other", lambda: list_each_other(nodes), 15)
    wait_for("beacons of all have come", lambda: metric(nodes[0].http, "sedge_discovery_addresses", source="multicast") == 4)
    reader, writer = nodes[0].client("reader"), nodes[4].client("writer")
    reader.subscribe("late/#", qos=1)
    number = 0

    def flow() -> None:
        nonlocal number
        writer.publish("late/on", str(number), qos=1)
        got = reader.expect(T.PUBLISH)
        assert got.payload == str(number).encode()
        reader.ack(T.PUBACK, got.pid)
        number += 1

    flow()
    nodes.append(make(beacons(port)))

    def joined() -> bool:
        flow()
        return list_each_other(nodes)

    wait_for("the sixth is listed by all", joined, 15)
    late = nodes[5].client("late")
    late.subscribe("late/#", qos=1)
    flow()
    late.message(str(number - 1))


def test_a_stranger_without_the_key_is_neither_listed_nor_told_anything(make: Make, port: int) -> None:
    """EL-02: a node with another key, one with another cluster's name, and a program that listens and shouts."""
    with socket.socket(type=socket.SOCK_DGRAM) as ear, socket.socket(type=socket.SOCK_DGRAM) as mouth:
        ear.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        ear.bind((GROUP, port))
        ear.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, struct.pack("4s4s", socket.inet_aton(GROUP), socket.inet_aton(HOST)))
        ear.settimeout(10)
        mouth.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, socket.inet_aton(HOST))
        mouth.bind((HOST, 0))
        mouth.setblocking(False)
        friends = [make(beacons(port, KEY)) for _ in range(2)]
        strangers = [make(beacons(port, "another key altogether")), make(f'name = "other"\n{beacons(port, KEY)}')]
        wait_for("friends list each other", lambda: list_each_other(friends), 15)
        recorded: list[bytes] = []
        wait_for("all four have spoken", lambda: recorded.append(ear.recv(2048)) or
                 all(any(node.cluster.to_bytes(2, "big") in one for one in recorded) for node in [*friends, *strangers]))
        everybody = [node.cluster.to_bytes(2, "big") for node in [*friends, *strangers]]
        for beacon in recorded:
            # magic, version, IPv4, address, port: the rest is random
            assert beacon[:7] == b"\x5d\x01\x04" + socket.inet_aton(HOST) and beacon[7:9] in everybody, beacon
            assert not any(name in beacon for name in (b"sedge", b"other", KEY.encode())), beacon
        shouts = [b"", b"\x00" * 64, recorded[0][:-1] + bytes([recorded[0][-1] ^ 1]), recorded[0][:9], *recorded]
        before = metric(friends[0].http, "sedge_discovery_refused_total")
        for shout in shouts:
            mouth.sendto(shout, (GROUP, port))
            mouth.sendto(shout, (HOST, friends[0].cluster))
        wait_for("the shouts were refused", lambda: metric(friends[0].http, "sedge_discovery_refused_total") >= before + 3)
        wait_for("and so were those to its own port", lambda: metric(friends[0].http, "sedge_datagrams_refused_total") >= len(shouts))
        # Both strangers have heard everything by now.
        wait_for("strangers hear", lambda: all(metric(node.http, "sedge_discovery_refused_total") >= 2 for node in strangers))
        assert list_each_other(friends)
        for stranger in strangers:
            assert members(stranger) == {address(stranger)}
            assert metric(stranger.http, "sedge_discovery_addresses", source="multicast") == 0
            assert stranger.status()["unreached_seeds"] == []
        with pytest.raises(BlockingIOError):
            mouth.recv(2048)


def test_a_node_that_is_gone_is_no_longer_asked_for(make: Make, port: int) -> None:
    """EL-03: the address of a node that fell silent is forgotten; when it speaks again, it is found again."""
    nodes = [make(beacons(port)) for _ in range(2)]
    wait_for("they list each other", lambda: list_each_other(nodes), 15)
    nodes[1].kill()
    wait_for("it is dead", lambda: members(nodes[0]) == {address(nodes[0])})
    wait_for("and forgotten", lambda: metric(nodes[0].http, "sedge_discovery_addresses", source="multicast") == 0, 40)
    assert nodes[0].status()["unreached_seeds"] == []
    nodes[1].start()
    wait_for("they list each other again", lambda: list_each_other(nodes), 15)


def test_a_network_that_is_not_there_stops_nobody(make: Make, binary: Path, port: int) -> None:
    """EL-02: the node serves, says what is wrong and what to do, and tries again."""
    lines = f'key = "{KEY}"\n[discovery]\nmulticast = "{GROUP}:{port}"\nmulticast_interface = "nope0"\n'
    node = make(lines)
    wait_for("it says so", lambda: metric(node.http, "sedge_discovery_failing", source="multicast") == 1)
    status = subprocess.run([str(binary), "status", "--api", f"http://{HOST}:{node.http}"], capture_output=True, text=True, check=True)
    assert f"multicast does not work: cannot listen on {GROUP}:{port}: No such device" in status.stdout, status.stdout
    assert "discovery.multicast_interface is no interface of this machine now" in node.log.read_text()
    wait_for("it tries again", lambda: metric(node.http, "sedge_discovery_failures_total", source="multicast") >= 2, 15)


def dead(node: Node) -> list[str]:
    """Addresses of the members that a node lists as dead."""
    return [one["address"] for one in get(f"http://{HOST}:{node.http}/api/v1/cluster")["dead"]]


def test_a_dead_member_is_listed_for_a_while_and_vanishes(make: Make, binary: Path) -> None:
    """EL-03: shown while it is dead, in the list, the metrics and by `sedge status`; one that left in order is not."""
    first = make('autoclean = "3s"\n')
    others = [make('autoclean = "3s"\n', [address(first)]) for _ in range(2)]
    wait_for("they list each other", lambda: list_each_other([first, *others]), 15)
    others[0].stop()
    wait_for("it has left", lambda: members(first) == {address(first), address(others[1])})
    others[1].kill()
    killed = time.monotonic()
    wait_for("it is dead", lambda: dead(first) == [address(others[1])])
    assert members(first) == {address(first)} and metric(first.http, "sedge_members_dead") == 1
    status = subprocess.run([str(binary), "status", "--api", f"http://{HOST}:{first.http}"], capture_output=True, text=True, check=True)
    assert f"{address(others[1])}  dead for " in status.stdout, status.stdout
    wait_for("it vanishes", lambda: dead(first) == [], 10)
    assert time.monotonic() - killed >= 3
    assert metric(first.http, "sedge_members_dead") == 0 and metric(first.http, "sedge_members_cleaned_total") == 1
    # Forgotten, yet not lost: its address is called.
    others[1].seeds = []
    others[1].start()
    wait_for("it is found again", lambda: list_each_other([first, others[1]]), 15)
    assert dead(first) == []


class Wired(Islands):
    """Islands with addresses of both families, whose nodes are told nothing but an interface."""

    def _wire_up(self) -> None:
        super()._wire_up()
        for node in range(self.count):
            ip("-n", f"{self.tag}n{node}", "addr", "add", f"fd5e:d9e::{node + 1}/64", "dev", "eth0", "nodad")


@needs_namespaces
@pytest.mark.parametrize(("group", "bind", "start"), [
    ("239.192.0.1", "0.0.0.0", "10."),
    ("ff05::5ed9", "::", "[fd5e:d9e::"),
])
def test_nodes_of_one_network_find_each_other(binary: Path, tmp_path: Path, group: str, bind: str, start: str) -> None:
    """TR-01, EL-02: on a real network, by IPv4 and IPv6; each finds out its own address."""
    islands = Wired(binary, tmp_path, 3, cluster__seeds="", cluster__bind=bind,
                    discovery__multicast=group, discovery__multicast_interface="eth0")
    try:
        wait_for("three members", lambda: all(islands.members(node) == 3 and islands.up(node) == 2 for node in range(3)), 15)
        addresses = {member["address"] for member in islands.api(0, "cluster")["members"]}
        assert len(addresses) == 3 and all(one.startswith(start) for one in addresses), addresses
    finally:
        islands.stop()


class Named(Resolving):
    """Nodes whose only seed is a name."""

    def prepare(self) -> None:
        self.dns.records.hosts["nodes.sedge.test"] = [self.address(node) for node in range(self.count)]


def of_seeds(islands: Islands, name: str) -> float:
    """A metric of the first node about its seeds; 0 if it has none."""
    for line in get(f"http://{islands.address(0)}:8080/metrics").splitlines():
        if line.startswith(f'{name}{{source="seeds"}}'):
            return float(line.split()[1])
    return 0


@needs_namespaces
def test_a_name_with_several_addresses_is_several_seeds_and_followed_when_it_changes(binary: Path, tmp_path: Path) -> None:
    """EL-02: A records; a node that is told of nobody comes up at another address, and only the name leads to it."""
    islands = Named(binary, tmp_path, 3, cluster__seeds="nodes.sedge.test", discovery__interval="200ms")
    try:
        wait_for("three members", lambda: all(islands.members(node) == 3 for node in range(3)), 15)
        wait_for("three addresses", lambda: of_seeds(islands, "sedge_discovery_addresses") == 3, 15)
        islands.kill(2)
        wait_for("two members", lambda: all(islands.members(node) == 2 for node in range(2)), 15)
        moved = f"{islands.net}.77"
        ip("-n", f"{islands.tag}n2", "addr", "del", f"{islands.address(2)}/24", "dev", "eth0")
        ip("-n", f"{islands.tag}n2", "addr", "add", f"{moved}/24", "dev", "eth0")
        islands.elsewhere[2] = moved
        islands.settings |= {"cluster__seeds": "", "node__data_dir": tmp_path / "another"}
        islands.start(2)
        wait_for("it is ready", lambda: islands.ready(2), 15)
        assert islands.members(2) == 1, "nobody knows where it is"
        hosts = islands.dns.records.hosts
        hosts["nodes.sedge.test"] = [islands.address(node) for node in range(3)]
        wait_for("it is found", lambda: all(islands.members(node) == 3 for node in range(3)), 15)
        assert moved in {member["address"].split(":")[0] for member in islands.api(0, "cluster")["members"]}
        wait_for("the former address is forgotten", lambda: not islands.api(0, "status")["unreached_seeds"])
        # A name that is not there for a while takes nothing away.
        del hosts["nodes.sedge.test"]
        wait_for("the failure is seen", lambda: of_seeds(islands, "sedge_discovery_failures_total") > 1)
        assert of_seeds(islands, "sedge_discovery_addresses") == 3
    finally:
        islands.stop()


@needs_namespaces
def test_a_service_leads_to_hosts_and_ports(binary: Path, tmp_path: Path) -> None:
    """EL-02: SRV records, found only after the start, over TCP because the answer is long; then a fourth is added."""
    service = "_sedge._tcp.sedge.test"
    islands = Resolving(binary, tmp_path, 3, cluster__seeds=f"srv:{service}", discovery__interval="200ms")
    try:
        assert [islands.members(node) for node in range(3)] == [1, 1, 1]
        log = (tmp_path / "node-0.log").read_text()
        assert "cluster.seeds" in log and service in log, log
        records = islands.dns.records
        records.hosts |= {f"gw-{node}.sedge.test": [islands.address(node)] for node in range(3)}
        records.services[service] = [(f"gw-{node}.sedge.test", 7883) for node in range(3)]
        wait_for("three members", lambda: all(islands.members(node) == 3 for node in range(3)), 15)
        # A node that others have found may not have asked for addresses itself yet.
        wait_for("three addresses", lambda: of_seeds(islands, "sedge_discovery_addresses") == 3, 15)
        assert records.asked_by_tcp > 0
        records.services[service].append(("gone.sedge.test", 7883))
        records.services[service].append(("gw-0.sedge.test", 7999))
        wait_for("one more, in spite of one that is no host", lambda: of_seeds(islands, "sedge_discovery_addresses") == 4)
    finally:
        islands.stop()


@pytest.fixture(params=["fake", "real"])
def etcd(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Etcd]:
    """An etcd."""
    program = shutil.which("etcd")
    if request.param == "real" and not program:
        pytest.skip("no etcd on this machine (Debian: etcd-server)")
    made: Etcd = RealEtcd(program, tmp_path) if program and request.param == "real" else FakeEtcd()
    yield made
    made.close()


def of_etcd(port: int, more: str = "") -> str:
    """Settings of a node that finds others by etcd."""
    return f'[discovery]\netcd = ["http://{HOST}:{port}"]\ninterval = "200ms"\n{more}'


def test_etcd_leads_nodes_to_each_other(make: Make, etcd: Etcd) -> None:
    """EL-02: each registers its address with a lease; one that leaves in order takes its key away; a late one joins."""
    nodes = [make(of_etcd(etcd.port)) for _ in range(3)]
    wait_for("they list each other", lambda: list_each_other(nodes), 15)
    keys = etcd.keys()
    assert set(keys.values()) == {address(node) for node in nodes}
    assert set(keys) == {f"{KEYS}/{node.status()['node']}" for node in nodes}
    wait_for("all keys are read", lambda: metric(nodes[0].http, "sedge_discovery_addresses", source="etcd") == 3)
    nodes.pop().stop()
    wait_for("its key is gone", lambda: set(etcd.keys().values()) == {address(node) for node in nodes})
    # A value that is no address is named, and takes nothing from the others.
    etcd.put(f"{KEYS}/nonsense", "not an address")
    etcd.put("/sedge/other/1", f"{HOST}:1")
    nodes.append(make(of_etcd(etcd.port)))
    wait_for("a late one is listed", lambda: list_each_other(nodes), 15)
    wait_for("the failure shows", lambda: metric(nodes[0].http, "sedge_discovery_failing", source="etcd") == 1)
    assert f"{KEYS}/nonsense" in nodes[0].log.read_text()
    assert nodes[0].status()["unreached_seeds"] == [], "another cluster's nodes are nobody's business"


def test_a_lease_that_ended_is_taken_anew_and_another_endpoint_is_asked(make: Make, binary: Path) -> None:
    """EL-02: etcd forgets everything, goes away and comes back; a node serves all the time and registers again."""
    dead_port, _, port = free_base(1)
    etcd = FakeEtcd(port)
    try:
        node = make(f'[discovery]\netcd = ["http://{HOST}:{dead_port}", "http://{HOST}:{port}"]\ninterval = "200ms"\n')
        wait_for("it registers", lambda: list(etcd.keys().values()) == [address(node)])
        for lease in list(etcd.leases):
            etcd.expire(lease)
        wait_for("it registers again", lambda: list(etcd.keys().values()) == [address(node)])
    finally:
        etcd.close()
    wait_for("etcd is missed", lambda: metric(node.http, "sedge_discovery_failing", source="etcd") == 1)
    assert metric(node.http, "sedge_discovery_addresses", source="etcd") == 1, "what was known stays"
    status = subprocess.run([str(binary), "status", "--api", f"http://{HOST}:{node.http}"], capture_output=True, text=True, check=True)
    assert "etcd does not work: " in status.stdout, status.stdout
    sources = {one["source"]: one for one in get(f"http://{HOST}:{node.http}/api/v1/cluster")["discovery"]}
    assert sources["etcd"]["addresses"] == [address(node)] and sources["seeds"] == {"source": "seeds", "addresses": [], "failure": None}
    etcd = FakeEtcd(port)
    try:
        wait_for("it registers with the new one", lambda: list(etcd.keys().values()) == [address(node)], 15)
        wait_for("and all is well", lambda: metric(node.http, "sedge_discovery_failing", source="etcd") == 0)
    finally:
        etcd.close()


def test_etcd_with_passwords_and_certificates(make: Make, tmp_path: Path) -> None:
    """EL-02: over TLS, both sides with certificates; tokens that end are asked for again."""
    authority(tmp_path, "ca")
    sign(tmp_path, "ca", "server", "etcd")
    sign(tmp_path, "ca", "client", "sedge")
    (tmp_path / "password").write_text("secret\n")
    etcd = FakeEtcd(0, server_context(tmp_path, "server", "ca"), ("sedge", "secret"))
    try:
        settings = (f'[discovery]\netcd = ["https://{HOST}:{etcd.port}"]\netcd_prefix = "/site"\netcd_user = "sedge"\n'
                    f'etcd_password_file = "{tmp_path}/password"\netcd_ca_file = "{tmp_path}/ca.crt"\n'
                    f'etcd_cert_file = "{tmp_path}/client.crt"\netcd_cert_key_file = "{tmp_path}/client.key"\ninterval = "200ms"\n')
        nodes = [make(settings) for _ in range(2)]
        wait_for("they list each other", lambda: list_each_other(nodes), 15)
        assert all(key.startswith(f"/site/{NAME}/") for key in etcd.keys())
        etcd.token = "token-1"
        nodes.append(make(settings))
        wait_for("a late one is listed", lambda: list_each_other(nodes), 15)
        asked = metric(nodes[0].http, "sedge_discovery_failures_total", source="etcd")
        wait_for("all is well", lambda: metric(nodes[0].http, "sedge_discovery_failing", source="etcd") == 0)
        assert asked < 5
    finally:
        etcd.close()


def test_kubernetes_leads_nodes_to_each_other(make: Make, tmp_path: Path) -> None:
    """EL-02: the pods of a service by its EndpointSlices, with the service account's token, which changes, and the API's authority."""
    authority(tmp_path, "ca")
    sign(tmp_path, "ca", "server", "kubernetes")
    account = tmp_path / "serviceaccount"
    account.mkdir()
    shutil.copy(tmp_path / "ca.crt", account / "ca.crt")
    (account / "token").write_text("first token")
    (account / "namespace").write_text("plant")
    api = FakeKubernetes(server_context(tmp_path, "server"), "plant", "sedge")
    try:
        settings = (f'[discovery]\nkubernetes_service = "sedge"\nkubernetes_api = "https://{HOST}:{api.port}"\n'
                    f'kubernetes_account = "{account}"\ninterval = "200ms"\n')
        nodes = [make(settings) for _ in range(3)]
        api.slices = [pod(nodes[0].cluster), pod(nodes[1].cluster, ready=False), pod(nodes[2].cluster)]
        wait_for("they list each other", lambda: list_each_other(nodes), 15)
        wait_for("all pods are read", lambda: metric(nodes[0].http, "sedge_discovery_addresses", source="kubernetes") == 3)
        assert api.pages >= 3
        api.slices = [pod(nodes[0].cluster), pod(nodes[1].cluster), pod(nodes[2].cluster, terminating=True)]
        wait_for("one ends", lambda: metric(nodes[0].http, "sedge_discovery_addresses", source="kubernetes") == 2)
        assert list_each_other(nodes), "what ends is a member until it goes"
        api.token = "second token"
        wait_for("the token does not hold", lambda: metric(nodes[0].http, "sedge_discovery_failing", source="kubernetes") == 1)
        (account / "token").write_text("second token")
        wait_for("the new one does", lambda: metric(nodes[0].http, "sedge_discovery_failing", source="kubernetes") == 0)
        api.namespace = "elsewhere"
        wait_for("the right is missing", lambda: metric(nodes[0].http, "sedge_discovery_failing", source="kubernetes") == 1)
        assert "allow the pod's service account to list endpointslices in namespace plant" in nodes[0].log.read_text()
        assert metric(nodes[0].http, "sedge_discovery_addresses", source="kubernetes") == 2, "what was known stays"
    finally:
        api.close()


def test_wrong_settings_are_refused(binary: Path, tmp_path: Path) -> None:
    """Each names the key and what to do."""
    config = tmp_path / "sedge.toml"
    for text, wanted in [
        ('multicast = "10.0.0.1"', "discovery.multicast: \"10.0.0.1\" is not a multicast group"),
        ('multicast_interface = "eth0"', "discovery.multicast_interface: is of no use without discovery.multicast"),
        ('multicast = "239.1.1.1"\nmulticast_interface = "eth0"', "discovery.multicast_interface: needs cluster.key"),
        ('multicast_tll = 3', "discovery.multicast_tll: unknown key; did you mean discovery.multicast_ttl?"),
        ('etcd = ["10.0.0.1:2379"]', 'discovery.etcd: "10.0.0.1:2379": write http://host:port or https://host:port'),
        ('etcd = ["https://10.0.0.1:2379"]', "discovery.etcd_ca_file: is missing"),
        ('etcd_user = "a"', "discovery.etcd_user: is of no use without discovery.etcd"),
        ('etcd = ["http://a:1"]\netcd_user = "a"', "discovery.etcd_password_file: is missing"),
        ('kubernetes_service = "a/b/c"', "discovery.kubernetes_service: \"a/b/c\""),
        ('kubernetes_service = "sedge"', "discovery.kubernetes_api: is missing"),
    ]:
        config.write_text(f"[discovery]\n{text}\n")
        checked = subprocess.run([str(binary), "config", "check", "-c", str(config)], capture_output=True, text=True, check=False)
        assert checked.returncode == 2 and wanted in checked.stderr, (text, checked.stderr)
