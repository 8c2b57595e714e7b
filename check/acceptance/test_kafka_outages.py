"""Outages on the way to a real Kafka, each under load, without transactions and with them: nothing is lost, order holds for each key, what comes
twice has the same identity and with transactions nothing does, and publishers do not notice. SEDGE_OUTAGE_SECONDS says how long each lasts."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import kafka
import pytest
from apart import can_make_namespaces
from cluster import HOST, free_base, metric, wait_for
from durable import Node
from kafka import Kafka
from outages import SECONDS, Far, Proxy
from pki import authority, openssl, sign
from remote import Load
from test_bridging import all_know, runs, state, the_runner  # noqa: F401 (fixtures)
from test_kafka import TLS, bridge

DEADLINE = 90.0 + 2 * SECONDS
# An acknowledgement may wait for another node's death to be noticed, and for a busy machine.
PAUSE_MAX = 10.0
# How often the bridging node is killed.
KILLS = int(os.environ.get("SEDGE_KAFKA_KILLS", "3"))

pytestmark = pytest.mark.skipif(
    not kafka.JARS or os.geteuid() != 0, reason="needs root, and SEDGE_KAFKA, the folder with Kafka: ./test kafka makes one")
both = pytest.mark.parametrize("exactly", [False, True], ids=["plain", "transactions"])


class Detoured(Kafka):
    """A Kafka whose clients come through a proxy."""

    def __init__(self, directory: Path, name: str = HOST) -> None:
        port = free_base(1)[0]
        super().__init__(directory, detour=f"{name}:{port}")
        self.address = f"{name}:{port}"
        self.proxy = Proxy(port, self.guarded)

    def stop(self) -> None:
        """Ends both."""
        super().stop()
        self.proxy.close()


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Detoured]:
    """The Kafka of most tests here; each has a topic of its own."""
    running = Detoured(tmp_path_factory.mktemp("kafka"))
    running.start()
    yield running
    running.stop()


@pytest.fixture(scope="module")
def named(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Detoured]:
    """One with a name of its own."""
    running = Detoured(tmp_path_factory.mktemp("named"), "kafka.example")
    running.start()
    yield running
    running.stop()


def out(node: Node) -> float:
    """Messages that this node has brought to Kafka."""
    return metric(node.http, "sedge_bridge_messages_out_total")


def is_down(node: Node) -> bool:
    """Whether the node says that Kafka cannot be reached."""
    return bool(state(node)["state"] == "down")


def is_back(node: Node) -> bool:
    """Whether a node that was started runs the bridge."""
    try:
        return runs(node)
    except OSError:
        return False


class Traffic:
    """Publishers of QoS 1 and 2 at a node, each with a topic of its own, which are the keys of the records."""

    def __init__(self, port: int, bridging: Node) -> None:
        self.loads = {f"up/{qos}": Load(port, f"up/{qos}", qos) for qos in (1, 2)}
        wait_for("the load flows", lambda: out(bridging) > 100, DEADLINE)

    def goes_on(self, more: int = 50) -> None:
        """Waits until publishers have had so many more acknowledgements each."""
        counts = {topic: len(load.acknowledged) for topic, load in self.loads.items()}
        wait_for("publishers go on", lambda: all(load.has_sent(counts[topic] + more) for topic, load in self.loads.items()), DEADLINE)

    def last(self, seconds: float = SECONDS) -> None:
        """Goes on for so long."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            self.goes_on(1)

    def check(self, broker: Kafka, topic: str, nodes: list[Node], exactly: bool) -> None:
        """Ends the load; everything has arrived as it has to."""
        self.goes_on()
        for load in self.loads.values():
            load.stop()
        wait_for("nothing waits", lambda: any(runs(node) and state(node)["lag"] == 0 for node in nodes), DEADLINE)
        seen: list[tuple[str, str, str]] = []
        missing: list[tuple[str, str]] = []

        def all_there() -> bool:
            """Whether a consumer finds everything."""
            seen[:] = [(key, value, headers["sedge-id"]) for headers, key, value in broker.consume(topic, 4, committed=exactly)]
            got = {(key, value) for key, value, _ in seen}
            missing[:] = [(key, value) for key, load in self.loads.items() for value in load.acknowledged if (key, value) not in got]
            return not missing

        until = time.monotonic() + DEADLINE
        while not all_there() and time.monotonic() < until:
            pass
        assert not missing, f"{len(missing)} of {len(seen) + len(missing)} lost: {missing[:3]} to {missing[-3:]}"
        identities: dict[tuple[str, str], str] = {}
        for key, value, identity in seen:
            assert identity and identities.setdefault((key, value), identity) == identity, f"{key} {value} has two identities"
        for key, load in self.loads.items():
            got = [value for at, value, _ in seen if at == key]
            sent = load.acknowledged
            known = set(sent)
            first = [one for one in dict.fromkeys(got) if one in known]
            assert first == sent, f"{key}: out of order: {next((a, b) for a, b in zip(first, sent, strict=True) if a != b)}"
            assert not exactly or len(got) == len(set(got)), f"{key}: {len(got) - len(set(got))} of {len(got)} came twice"
            assert load.longest < PAUSE_MAX, f"{key}: a publisher waited {load.longest:.1f} s for an acknowledgement"


def section(broker: Kafka, topic: str, exactly: bool, **settings: object) -> str:
    """A bridge to Kafka, of a cluster with the topic's name."""
    address = broker.address if isinstance(broker, Detoured) else f"{broker.host}:{broker.port}"
    return f'name = "{topic.lower()}"\n' + bridge(broker, **{"from": ["up/#"], "address": [address], **settings}, topic=topic, transactional=exactly)


@both
@pytest.mark.parametrize("what", ["refuse", "cut", "trickle", "stop", "kill"])
def test_kafka_refuses_breaks_off_crawls_hangs_or_dies(
    make_site: Callable[..., list[Node]], broker: Detoured, what: str, exactly: bool  # noqa: F811
) -> None:
    """DP-03: connections are refused; reset in the middle of a batch, again and again; get one byte a second; are not answered; kill -9."""
    topic = f"{what}-{exactly}"
    (node,) = make_site(section(broker, topic, exactly))
    wait_for("the bridge runs", lambda: runs(node), DEADLINE)
    traffic = Traffic(node.port, node)
    if what == "refuse":
        broker.proxy.refuse()
        wait_for("the outage is noticed", lambda: is_down(node), DEADLINE)
    elif what == "cut":
        before = broker.proxy.resets
        broker.proxy.mode = what
        wait_for("connections break off", lambda: broker.proxy.resets >= before + 3, DEADLINE)
    elif what == "trickle":
        broker.proxy.mode = what
        wait_for("messages wait", lambda: state(node)["lag"] > 200, DEADLINE)
    elif what == "stop":
        broker.signal(signal.SIGSTOP)
        wait_for("messages wait", lambda: state(node)["lag"] > 200, DEADLINE)
    else:
        broker.kill()
    traffic.last()
    if what == "refuse":
        broker.proxy.listen()
    elif what == "stop":
        broker.signal(signal.SIGCONT)
    elif what == "kill":
        broker.start()
    broker.proxy.mode = "pass"
    broker.proxy.reset()
    traffic.check(broker, topic, [node], exactly)


@both
def test_a_kafka_whose_packets_are_lost(make_site: Callable[..., list[Node]], tmp_path: Path, exactly: bool) -> None:
    """DP-03, emqx#17916: nobody is told of anything: connections neither end nor go on, and new ones get no answer."""
    if not can_make_namespaces():
        pytest.skip("needs network namespaces")
    far = Far()
    distant = Kafka(tmp_path, within=(far.space, far.address))
    try:
        distant.start()
        (node,) = make_site(section(distant, "lost", exactly))
        wait_for("the bridge runs", lambda: runs(node), DEADLINE)
        traffic = Traffic(node.port, node)
        far.lose()
        wait_for("messages wait", lambda: state(node)["lag"] > 200, DEADLINE)
        traffic.last()
        far.heal()
        traffic.check(distant, "lost", [node], exactly)
    finally:
        distant.stop()
        far.remove()


@both
def test_a_name_that_nobody_knows_any_more(named: Detoured, binary: Path, tmp_path: Path, exactly: bool) -> None:
    """DP-03: the name of Kafka cannot be resolved for a while."""
    hosts, resolver = tmp_path / "hosts", tmp_path / "resolv.conf"
    known, unknown = f"{HOST} localhost\n{HOST} kafka.example\n", f"{HOST} localhost\n"
    hosts.write_text(known)
    resolver.write_text(f"nameserver {HOST}\noptions timeout:1 attempts:1\n")
    wrapped = tmp_path / "sedge-with-names"
    wrapped.write_text(f"#!/bin/sh\nexec unshare -m sh -c 'mount --bind {hosts} /etc/hosts && mount --bind {resolver} /etc/resolv.conf && exec {binary} \"$@\"' sh \"$@\"\n")
    wrapped.chmod(0o755)
    node = Node(wrapped, tmp_path / "node", "journal")
    topic = f"named-{exactly}"
    node.extra = section(named, topic, exactly)
    try:
        node.start()
        wait_for("the bridge runs", lambda: runs(node), DEADLINE)
        traffic = Traffic(node.port, node)
        hosts.write_text(unknown)
        # Kafka's client remembers the broker's address for a second, and would go on with that.
        named.proxy.refuse()
        wait_for("the address is forgotten", lambda: "/1: Failed to resolve 'kafka.example" in (state(node)["last_error"] or ""), DEADLINE)
        named.proxy.listen()
        traffic.last()
        assert is_down(node)
        hosts.write_text(known)
        traffic.check(named, topic, [node], exactly)
    finally:
        node.stop()


@both
def test_a_certificate_that_has_expired(make_site: Callable[..., list[Node]], tmp_path: Path, exactly: bool) -> None:
    """DP-03: Kafka shows a certificate of the past until somebody renews it; the bridge does not take it."""
    if not TLS or not shutil.which("faketime"):
        pytest.skip("needs faketime, and a program with TLS to Kafka: SEDGE_KAFKA_TLS=1 says that it has")
    authority(tmp_path, "ca")
    sign(tmp_path, "ca", "good", "localhost")
    openssl(tmp_path, "req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-subj", "/CN=localhost", "-keyout", "old.key", "-out", "old.csr")
    subprocess.run(["faketime", "2020-01-01", "openssl", "x509", "-req", "-in", "old.csr", "-CA", "ca.crt", "-CAkey", "ca.key", "-CAcreateserial",
                    "-days", "2", "-extfile", "ext", "-out", "old.crt"], cwd=tmp_path, check=True, capture_output=True)
    shown = tmp_path / "shown.pem"

    def show(name: str) -> None:
        """Kafka shows this one from its next start on."""
        shown.write_text("".join((tmp_path / part).read_text() for part in (f"{name}.key", f"{name}.crt", "ca.crt")))

    show("good")
    (tmp_path / "secret").write_text("right\n")
    guarded = Kafka(tmp_path, {"site": "right"}, shown).start()
    settings: dict[str, object] = {"sasl": "plain", "username": "site", "password_file": f"{tmp_path}/secret", "tls": True, "ca_file": f"{tmp_path}/ca.crt"}
    try:
        (node,) = make_site(section(guarded, "expired", exactly, address=[f"localhost:{guarded.guarded}"], **settings))
        wait_for("the bridge runs", lambda: runs(node), DEADLINE)
        traffic = Traffic(node.port, node)
        for name in ("old", "good"):
            guarded.kill()
            show(name)
            guarded.start()
            if name == "old":
                wait_for("the old one is shown", lambda: "certificate verify failed" in (state(node)["last_error"] or ""), DEADLINE)
                traffic.last()
        traffic.check(guarded, "expired", [node], exactly)
    finally:
        guarded.stop()


def made(broker: Kafka, topic: str, *options: str) -> bool:
    """Makes a topic, if the brokers for it are there."""
    try:
        broker.create(topic, *options)
    except AssertionError:
        return False
    return True


@both
@pytest.mark.parametrize("needed", [1, 2])
def test_a_leader_dies_and_comes_back(make_site: Callable[..., list[Node]], tmp_path: Path, needed: int, exactly: bool) -> None:
    """DP-03: kill -9 of the broker that leads the partition: another broker leads, and then the first one again. Meanwhile the topic takes nothing
    if it needs two brokers."""
    folders = [tmp_path / name for name in ("one", "two")]
    for folder in folders:
        folder.mkdir()
    first = Kafka(folders[0], copies=2).start()
    second = Kafka(folders[1], first=first, copies=2)
    try:
        second.start()
        wait_for("there are two brokers", lambda: made(first, "led", "--replica-assignment", "2:1", "--config", f"min.insync.replicas={needed}"), DEADLINE)
        wait_for("the second one leads", lambda: first.leader("led") == 2, DEADLINE)
        both_of_them = [f"{HOST}:{first.port}", f"{HOST}:{second.port}"]
        (node,) = make_site(section(first, "led", exactly, address=both_of_them))
        wait_for("the bridge runs", lambda: runs(node), DEADLINE)
        traffic = Traffic(node.port, node)
        second.kill()
        wait_for("another one leads", lambda: first.leader("led") == 1, DEADLINE)
        if needed == 2:
            wait_for("messages wait", lambda: state(node)["lag"] > 200, DEADLINE)
        traffic.last()
        second.start()
        traffic.goes_on(500)
        traffic.check(first, "led", [node], exactly)
    finally:
        second.stop()
        first.stop()


@both
def test_a_disk_that_is_full(make_site: Callable[..., list[Node]], tmp_path: Path, exactly: bool) -> None:
    """DP-03: Kafka ends when its disk is full; somebody makes room and starts it again."""
    disk = tmp_path / "disk"
    disk.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64m", "none", str(disk)], capture_output=True, check=False).returncode:
        pytest.skip("this user may not mount a disk of memory")
    small = Kafka(disk)
    try:
        small.start()
        (node,) = make_site(section(small, "full", exactly))
        wait_for("the bridge runs", lambda: runs(node), DEADLINE)
        traffic = Traffic(node.port, node)
        subprocess.run(["dd", "if=/dev/zero", f"of={disk}/ballast", "bs=64k"], capture_output=True, check=False)
        assert small.process
        wait_for("Kafka gives up", lambda: small.process.poll() is not None, DEADLINE)
        traffic.last()
        (disk / "ballast").unlink()
        small.start()
        traffic.check(small, "full", [node], exactly)
    finally:
        small.stop()
        subprocess.run(["umount", "-l", str(disk)], check=False)


@both
@pytest.mark.parametrize("what", ["node", "both"])
def test_the_bridging_node_is_killed(
    make_site: Callable[..., list[Node]], broker: Detoured, what: str, exactly: bool  # noqa: F811
) -> None:
    """DP-01, DP-03: kill -9 of the node that runs the bridge, again and again, and of Kafka at the same moment: another node goes on."""
    topic = f"killed-{what}-{exactly}"
    nodes = make_site(section(broker, topic, exactly), 3)
    wait_for("one runs the bridge, and the others know", lambda: all_know(nodes), DEADLINE)
    first = the_runner(nodes)
    others = [node for node in nodes if node is not first]
    # The node that does not run the bridge when the first one is dead has the publishers.
    first.kill()
    wait_for("another node runs it", lambda: any(runs(node) for node in others), DEADLINE)
    last = next(node for node in others if not runs(node))
    first.start()
    wait_for("the first one runs it again", lambda: runs(first), DEADLINE)
    traffic = Traffic(last.port, first)
    pauses: list[float] = []
    for _ in range(1 if what == "both" else KILLS):
        if what == "both":
            broker.kill()
        first.kill()
        began = time.monotonic()
        if what == "both":
            traffic.last()
            broker.start()
        wait_for("another node runs it", lambda: any(runs(node) for node in others), DEADLINE)
        pauses.append(time.monotonic() - began)
        traffic.goes_on()
        first.spawn()
        wait_for("the first one runs it again", lambda: is_back(first), DEADLINE)
        count = out(first)
        wait_for("the load flows", lambda at=count: out(first) > at + 100, DEADLINE)
    traffic.check(broker, topic, nodes, exactly)
    pauses.sort()
    messages = sum(len(load.acknowledged) for load in traffic.loads.values())
    print(f"{topic}: {len(pauses)} kills, {messages} messages; seconds until a successor runs: half {pauses[len(pauses) // 2]:.2f}, longest {pauses[-1]:.2f}")
