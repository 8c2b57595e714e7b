"""Outages on the way to a real Mosquitto, each under load: nothing is lost, order holds for each topic, what comes twice has the same identity,
and publishers do not notice. SEDGE_OUTAGE_SECONDS says how long each lasts."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from apart import can_make_namespaces
from client import Client
from cluster import HOST, free_base, metric, wait_for
from durable import Node
from mqttwire import V5
from outages import SECONDS, Far, Proxy
from pki import authority, openssl, sign
from remote import Collector, Load, Remote
from test_bridging import all_know, bridge, remote, runs, state, the_runner  # noqa: F401 (fixtures)

DEADLINE = 60.0 + 2 * SECONDS
# An acknowledgement may wait for another node's death to be noticed, and for a busy machine.
PAUSE_MAX = 10.0

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")


@pytest.fixture
def proxy(remote: Remote) -> Iterator[Proxy]:  # noqa: F811
    """The way to the remote broker."""
    made = Proxy(free_base(1)[0], remote.port)
    yield made
    made.close()


class Traffic:
    """Publishers of QoS 1 and 2 at a node, each with a topic of its own, and a client that counts at the remote broker."""

    def __init__(self, port: int, collector: Collector) -> None:
        self.far = collector
        self.loads = {f"up/{qos}": Load(port, f"up/{qos}", qos) for qos in (1, 2)}
        wait_for("the load flows", lambda: all(len(self.arrived(topic)) > 50 for topic in self.loads), DEADLINE)

    def arrived(self, topic: str) -> list[str]:
        """The payloads of a topic that have arrived."""
        return [payload for at, payload in zip(self.far.topics, self.far.payloads, strict=False) if at == topic]

    def goes_on(self, more: int = 100) -> None:
        """Waits until publishers have had so many more acknowledgements each."""
        counts = {topic: len(load.acknowledged) for topic, load in self.loads.items()}
        wait_for("publishers go on", lambda: all(load.has_sent(counts[topic] + more) for topic, load in self.loads.items()), DEADLINE)

    def last(self, seconds: float) -> None:
        """Goes on for so long."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            self.goes_on(1)

    def check(self, exactly: bool = False) -> None:
        """Ends the load; everything has arrived as it has to."""
        self.goes_on()
        for topic, load in self.loads.items():
            sent = load.stop()
            wait_for(f"everything of {topic} is there", lambda t=topic, s=sent: set(s) <= set(self.arrived(t)), DEADLINE)
        self.far.stop()
        for topic, load in self.loads.items():
            got = self.arrived(topic)
            sent = load.acknowledged
            known = set(sent)
            first = [one for one in dict.fromkeys(got) if one in known]
            assert first == sent, f"{topic}: out of order: {next((a, b) for a, b in zip(first, sent, strict=True) if a != b)}"
            if exactly and topic == "up/2":
                assert len(got) == len(set(got)), f"{topic}: {len(got) - len(set(got))} came twice"
            assert load.longest < PAUSE_MAX, f"{topic}: a publisher waited {load.longest:.1f} s for an acknowledgement"
        identities: dict[tuple[str, str], str] = {}
        for topic, payload, identity in zip(self.far.topics, self.far.payloads, self.far.identities, strict=True):
            assert identity and identities.setdefault((topic, payload), identity) == identity, f"{topic} {payload} has two identities"


def is_down(node: Node) -> bool:
    """Whether the node says that the other end cannot be reached."""
    return bool(state(node)["state"] == "down")


@pytest.mark.parametrize("what", ["refuse", "cut", "trickle"])
def test_a_way_that_refuses_breaks_off_or_crawls(
    make_site: Callable[..., list[Node]], remote: Remote, proxy: Proxy, what: str  # noqa: F811
) -> None:
    """DP-03, MQ-18: connections are refused; reset in the middle of a packet, again and again; or get one byte a second."""
    (node,) = make_site(bridge(remote, address=[f"{HOST}:{proxy.port}"], reconnect_max="500ms"))
    wait_for("the bridge runs", lambda: runs(node), DEADLINE)
    traffic = Traffic(node.port, Collector(remote.port, "up/#"))
    if what == "refuse":
        proxy.refuse()
        wait_for("the outage is noticed", lambda: is_down(node), DEADLINE)
    else:
        proxy.mode = what
    if what == "cut":
        wait_for("connections break off", lambda: proxy.resets >= 3, DEADLINE)
    if what == "trickle":
        wait_for("messages wait", lambda: state(node)["lag"] > 200, DEADLINE)
    traffic.last(SECONDS)
    if what == "refuse":
        proxy.listen()
    proxy.mode = "pass"
    proxy.reset()
    traffic.check(exactly=True)


def test_a_message_that_takes_longer_than_the_other_end_may_be_silent(
    make_site: Callable[..., list[Node]], remote: Remote, proxy: Proxy  # noqa: F811
) -> None:
    """DP-03: 1 MB takes 5 s over this path, and a silent end is given up after 2 s: each message arrives once, over one connection."""
    (node,) = make_site(bridge(remote, address=[f"{HOST}:{proxy.port}"], keep_alive="1s"))
    wait_for("the bridge runs", lambda: runs(node), DEADLINE)
    collector = Collector(remote.port, "up/#")
    proxy.mode, proxy.rate = "narrow", 200_000
    writer = Client(HOST, node.port, V5, timeout=DEADLINE)
    writer.connect("writer")
    for number in range(3):
        writer.publish("up/large", b"%d" % number + b"x" * 1_000_000, qos=1)
    wait_for("all are there", lambda: len(collector.payloads) >= 3, DEADLINE)
    proxy.mode = "pass"
    writer.publish("up/small", b"last", qos=1)
    wait_for("the last is there", lambda: collector.payloads[-1] == "last", DEADLINE)
    assert [payload[:1] for payload in collector.payloads] == ["0", "1", "2", "l"]
    assert state(node)["connects"] == 1


@pytest.mark.skipif(not can_make_namespaces(), reason="needs network namespaces")
def test_a_host_whose_packets_are_lost(make_site: Callable[..., list[Node]], tmp_path: Path) -> None:
    """DP-03, emqx#17916: nobody is told of anything: connections neither end nor go on, and new ones get no answer."""
    far = Far()
    port = free_base(1)[0]
    distant = Remote(tmp_path, port, within=(far.space, far.address))
    try:
        distant.start()
        (node,) = make_site(bridge(distant, address=[f"{far.address}:{port}"], reconnect_max="500ms"))
        wait_for("the bridge runs", lambda: runs(node), DEADLINE)
        traffic = Traffic(node.port, Collector(port, "up/#", host=far.address, patience=DEADLINE))
        far.lose()
        wait_for("the outage is noticed", lambda: is_down(node), DEADLINE)
        traffic.last(SECONDS)
        assert state(node)["lag"] > 0
        far.heal()
        traffic.check(exactly=True)
    finally:
        distant.stop()
        far.remove()


def test_a_name_that_nobody_knows_any_more(
    make_site: Callable[..., list[Node]], remote: Remote, proxy: Proxy, binary: Path, tmp_path: Path  # noqa: F811
) -> None:
    """DP-03: the name of the other end cannot be resolved for a while."""
    hosts, resolver = tmp_path / "hosts", tmp_path / "resolv.conf"
    known, unknown = f"{HOST} localhost\n{HOST} cloud.example\n", f"{HOST} localhost\n"
    hosts.write_text(known)
    resolver.write_text(f"nameserver {HOST}\noptions timeout:1 attempts:1\n")
    wrapped = tmp_path / "sedge-with-names"
    wrapped.write_text(f"#!/bin/sh\nexec unshare -m sh -c 'mount --bind {hosts} /etc/hosts && mount --bind {resolver} /etc/resolv.conf && exec {binary} \"$@\"' sh \"$@\"\n")
    wrapped.chmod(0o755)
    node = Node(wrapped, tmp_path / "named", "journal")
    node.extra = bridge(remote, address=[f"cloud.example:{proxy.port}"], reconnect_max="500ms")
    try:
        node.start()
        wait_for("the bridge runs", lambda: runs(node), DEADLINE)
        traffic = Traffic(node.port, Collector(remote.port, "up/#"))
        hosts.write_text(unknown)
        proxy.reset()
        wait_for("the outage is noticed", lambda: is_down(node), DEADLINE)
        traffic.last(SECONDS)
        assert "cloud.example" in state(node)["last_error"]
        hosts.write_text(known)
        traffic.check(exactly=True)
    finally:
        node.stop()


@pytest.mark.skipif(not shutil.which("faketime"), reason="faketime is missing")
def test_a_certificate_that_has_expired(make_site: Callable[..., list[Node]], tmp_path: Path) -> None:
    """DP-03: the remote broker shows a certificate of the past until somebody renews it; the bridge takes neither it nor a connection without."""
    authority(tmp_path, "ca")
    sign(tmp_path, "ca", "good", "localhost")
    openssl(tmp_path, "req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-subj", "/CN=localhost", "-keyout", "old.key", "-out", "old.csr")
    subprocess.run(["faketime", "2020-01-01", "openssl", "x509", "-req", "-in", "old.csr", "-CA", "ca.crt", "-CAkey", "ca.key", "-CAcreateserial",
                    "-days", "2", "-extfile", "ext", "-out", "old.crt"], cwd=tmp_path, check=True, capture_output=True)
    plain, port = free_base(1)[:2]
    for end in ("crt", "key"):
        shutil.copy(tmp_path / f"good.{end}", tmp_path / f"far.{end}")
    far = Remote(tmp_path, plain, f"user root\nlistener {port} {HOST}\ncertfile {tmp_path}/far.crt\nkeyfile {tmp_path}/far.key\n").start()
    proxy = Proxy(free_base(1)[0], port)
    try:
        (node,) = make_site(bridge(far, address=[f"localhost:{proxy.port}"], tls=True, ca_file=f"{tmp_path}/ca.crt", reconnect_max="500ms"))
        wait_for("the bridge runs", lambda: runs(node), DEADLINE)
        traffic = Traffic(node.port, Collector(plain, "up/#"))
        for name in ("old", "good"):
            for end in ("crt", "key"):
                shutil.copy(tmp_path / f"{name}.{end}", tmp_path / f"far.{end}")
            far.signal(signal.SIGHUP)
            if name == "old":
                wait_for("the old one is shown", lambda: proxy.reset() or "xpired" in (state(node)["last_error"] or ""), DEADLINE)
                wait_for("the outage is noticed", lambda: is_down(node), DEADLINE)
                traffic.last(SECONDS)
        traffic.check(exactly=True)
    finally:
        proxy.close()
        far.stop()


def test_a_remote_broker_that_has_no_room(make_site: Callable[..., list[Node]], remote: Remote, binary: Path, tmp_path: Path) -> None:  # noqa: F811
    """DP-03: a broker of a second site, whose own buffer is full, refuses with 0x97 until it has room: all of it goes on, in order."""
    cloud = Node(binary, tmp_path / "cloud", "journal")
    cloud.extra = bridge(remote, buffer={"max_bytes": "16KiB", "full": "refuse"}, reconnect_max="500ms")
    try:
        cloud.start()
        wait_for("the second bridge runs", lambda: runs(cloud), DEADLINE)
        (node,) = make_site(bridge(remote, address=[f"{HOST}:{cloud.port}"], reconnect_max="500ms"))
        wait_for("the bridge runs", lambda: runs(node), DEADLINE)
        traffic = Traffic(node.port, Collector(remote.port, "up/#"))
        remote.signal(signal.SIGSTOP)
        wait_for("the other site refuses", lambda: metric(cloud.http, "sedge_bridge_buffer_refused_total") > 0, DEADLINE)
        traffic.last(SECONDS)
        assert state(node)["lag"] > 0
        remote.signal(signal.SIGCONT)
        traffic.check(exactly=True)
    finally:
        cloud.stop()


def test_both_the_remote_broker_and_the_bridging_node_are_killed(make_site: Callable[..., list[Node]], remote: Remote) -> None:  # noqa: F811
    """DP-03: kill -9 of both at once; another node goes on when the remote broker is back, and finds everything."""
    nodes = make_site(bridge(remote, qos=1, reconnect_max="500ms"), 3)
    wait_for("one runs the bridge, and the others know", lambda: all_know(nodes), DEADLINE)
    first = the_runner(nodes)
    others = [node for node in nodes if node is not first]
    # Quality of service 0: see test_bridging.py.
    far = Collector(remote.port, "up/#", qos=0)
    traffic = Traffic(others[0].port, far)
    remote.kill()
    first.kill()
    far.ready.clear()
    traffic.last(SECONDS)
    wait_for("another node tries", lambda: any(is_down(node) for node in others), DEADLINE)
    # The subscriber is there before the bridge, so that messages from the bridge have a receiver.
    for node in others:
        assert node.process
        node.process.send_signal(signal.SIGSTOP)
    remote.start()
    assert far.ready.wait(20)
    for node in others:
        assert node.process
        node.process.send_signal(signal.SIGCONT)
    wait_for("another node runs it", lambda: any(runs(node) for node in others), DEADLINE)
    traffic.check()
