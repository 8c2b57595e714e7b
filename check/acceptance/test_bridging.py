"""Bridges of Sedge to a remote MQTT broker: a real Mosquitto."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from client import Client
from cluster import HOST, free_base, get, metric, wait_for
from durable import Node
from mqttwire import V5
from pki import authority, sign
from remote import Collector, Load, Remote

DEADLINE = 60.0


@pytest.fixture
def remote(tmp_path: Path) -> Iterator[Remote]:
    """The broker at the other end."""
    running = Remote(tmp_path, free_base(1)[0]).start()
    yield running
    running.stop()


def toml(value: object) -> str:
    """A value as TOML has it."""
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{key} = {toml(one)}" for key, one in value.items()) + " }"
    return json.dumps(value)


def bridge(remote: Remote, **settings: object) -> str:
    """A section for one bridge."""
    lines = {"kind": "mqtt", "address": [f"{HOST}:{remote.port}"], "from": ["up/#"], "keep_alive": 1, **settings}
    body = "".join(f"{key} = {toml(value)}\n" for key, value in lines.items())
    return f"[bridge.cloud]\n{body}"


def state(node: Node) -> dict[str, Any]:
    """The node's bridge, as its API lists it."""
    found: dict[str, Any] = get(f"http://{HOST}:{node.http}/api/v1/bridges")["bridges"][0]
    return found


def runs(node: Node) -> bool:
    """Whether the node runs the bridge."""
    return bool(state(node)["state"] == "running")


def all_know(nodes: list[Node]) -> bool:
    """Whether one node runs the bridge, and the others know which."""
    return sorted(state(node)["state"] for node in nodes) == ["elsewhere"] * (len(nodes) - 1) + ["running"]


def check(sent: list[str], got: list[str], exactly: bool) -> None:
    """Nothing is missing, the first copies are in order, and with QoS 2 there are no others."""
    missing = sorted(set(sent) - set(got), key=int)
    assert not missing, f"{len(missing)} of {len(sent)} lost: {missing[:10]}"
    first, known = list(dict.fromkeys(got)), set(sent)
    assert [one for one in first if one in known] == sent, "out of order"
    if exactly:
        assert len(got) == len(first), f"{len(got) - len(first)} came twice"


def the_runner(nodes: list[Node]) -> Node:
    """The node that runs the bridge, once the nodes agree on one."""
    running = wait_for("one runs the bridge", lambda: found if len(found := [node for node in nodes if runs(node)]) == 1 else [], 20)
    return running[0]


@pytest.mark.parametrize("version", ["5.0", "3.1.1"])
def test_messages_reach_the_remote_broker_with_quality_retain_and_prefix(
    make_site: Callable[..., list[Node]], remote: Remote, binary: Path, version: str
) -> None:
    """MQ-18, DP-04, O1."""
    (node,) = make_site(bridge(remote, topic="site-1", version=version, notifications="bridges/cloud"))
    far = remote.client("far")
    far.subscribe("site-1/#", qos=2)
    wait_for("the bridge runs", lambda: runs(node))
    near = node.client("near", clean=True)
    for qos in range(3):
        near.publish(f"up/{qos}", f"text {qos}", qos=qos, props={"user_property": [("a", "b")], "content_type": "text/plain"})
        got = far.message(f"text {qos}", topic=f"site-1/up/{qos}", qos=qos)
        if version == "5.0":
            assert ("a", "b") in got.props["user_property"] and got.props["content_type"] == "text/plain"
            assert ("sedge-hops", "1") in got.props["user_property"]
    near.publish("up/kept", "1", qos=1, retain=True)
    near.publish("elsewhere", "not selected", qos=1)
    later = remote.client("later")
    wait_for("it is retained there", lambda: metric(node.http, "sedge_bridge_messages_out_total") >= 4)
    later.subscribe("#", qos=1)
    topics = {later.message(retain=True).topic for _ in range(2)}
    assert topics == {"site-1/up/kept", "bridges/cloud"}
    near.publish("up/0", "again", qos=1)
    far.message("1", topic="site-1/up/kept", qos=1, retain=False)
    far.message("again", topic="site-1/up/0")  # nothing else came in between
    told = subprocess.run(
        [str(binary), "bridges", "--api", f"http://{HOST}:{node.http}"], capture_output=True, text=True, check=True, timeout=20
    ).stdout
    assert "running" in told and f"{HOST}:{remote.port}" in told, told
    assert state(node)["lag"] == 0


def test_nobody_from_outside_connects_as_a_bridge(make_site: Callable[..., list[Node]], remote: Remote) -> None:
    """MQ-18: the session of a bridge is its own."""
    (node,) = make_site(bridge(remote))
    wait_for("the bridge runs", lambda: runs(node))
    client = Client(HOST, node.port, V5)
    assert client.try_connect("$bridge/cloud").reason == 0x85
    wait_for("the bridge still runs", lambda: runs(node))


@pytest.mark.parametrize("qos", [1, 2])
def test_an_outage_that_hangs_loses_nothing(make_site: Callable[..., list[Node]], remote: Remote, qos: int) -> None:
    """MQ-18, DP-03: SIGSTOP of the remote broker under load; keep alive finds it, the session keeps the messages that come."""
    (node,) = make_site(bridge(remote))
    wait_for("the bridge runs", lambda: runs(node))
    far = Collector(remote.port, "up/#")
    load = Load(node.port, "up/load", qos)
    wait_for("the load flows", lambda: len(far.payloads) > 100, DEADLINE)
    remote.signal(signal.SIGSTOP)
    wait_for("the outage is noticed", lambda: state(node)["state"] == "down", DEADLINE)
    before = len(load.acknowledged)
    wait_for("publishers go on", lambda: load.has_sent(before + 500), DEADLINE)
    assert "did not answer" in state(node)["last_error"]
    wait_for("messages wait", lambda: state(node)["lag"] > 100, DEADLINE)
    remote.signal(signal.SIGCONT)
    wait_for("the bridge runs again", lambda: runs(node), DEADLINE)
    sent = load.stop()
    wait_for("everything is there", lambda: set(sent) <= set(far.payloads), DEADLINE)
    far.stop()
    check(sent, far.payloads, exactly=qos == 2)


@pytest.mark.parametrize("version", ["3.1.1", "5.0"])
def test_a_remote_broker_gets_no_more_at_once_than_it_takes(make_site: Callable[..., list[Node]], tmp_path: Path, version: str) -> None:
    """MQ-18: Mosquitto with its own settings drops publications with QoS 2 above 20 at once, and acknowledges them to clients by 3.1.1."""
    remote = Remote(tmp_path, free_base(1)[0], "max_inflight_messages 20\n").start()
    try:
        (node,) = make_site(bridge(remote, version=version, qos=2))
        wait_for("the bridge runs", lambda: runs(node))
        far = Collector(remote.port, "up/#")
        remote.signal(signal.SIGSTOP)
        writer = Client(HOST, node.port, V5, timeout=20)
        writer.connect("writer")
        for number in range(500):
            writer.publish("up/many", str(number), qos=2)
        remote.signal(signal.SIGCONT)
        wait_for("everything is there", lambda: len(far.payloads) >= 500, DEADLINE)
        far.stop()
        check([str(number) for number in range(500)], far.payloads, exactly=True)
    finally:
        remote.stop()


def test_a_killed_remote_broker_loses_nothing_that_it_had_not_acknowledged(
    make_site: Callable[..., list[Node]], remote: Remote
) -> None:
    """MQ-18, DP-03: kill -9 of the remote broker under load, three times; its subscriber comes again and misses nothing of what waited."""
    (node,) = make_site(bridge(remote))
    wait_for("the bridge runs", lambda: runs(node))
    # Quality of service 0: a broker that is killed with an acknowledgement unread resets the connection, and what its kernel
    # had given to the subscriber's one, acknowledged to the bridge by then, is thrown away.
    far = Collector(remote.port, "up/#", qos=0)
    load = Load(node.port, "up/load", 1)
    for turn in range(3):
        wait_for("the load flows", lambda: len(far.payloads) > 100 * (turn + 1), DEADLINE)
        remote.kill()
        before = len(load.acknowledged)
        wait_for("publishers go on", lambda before=before: load.has_sent(before + 200), DEADLINE)
        far.ready.clear()
        # The subscriber is there before the bridge, so that messages from the bridge have a receiver.
        node_paused = node.process
        assert node_paused
        node_paused.send_signal(signal.SIGSTOP)
        remote.start()
        assert far.ready.wait(20)
        node_paused.send_signal(signal.SIGCONT)
        wait_for("the bridge runs again", lambda: runs(node), DEADLINE)
    sent = load.stop()
    wait_for("everything is there", lambda: set(sent) <= set(far.payloads), DEADLINE)
    far.stop()
    check(sent, far.payloads, exactly=False)


@pytest.mark.parametrize("qos", [1, 2])
def test_the_successor_of_a_killed_bridging_node_goes_on(
    make_site: Callable[..., list[Node]], remote: Remote, qos: int
) -> None:
    """MQ-18, DP-03, FT: kill -9 of the node that runs the bridge, while the remote broker cannot be reached and messages wait."""
    nodes = make_site(bridge(remote), 3)
    told = lambda: sorted(state(node)["state"] for node in nodes) == ["elsewhere", "elsewhere", "running"]  # noqa: E731
    wait_for("one runs the bridge, and the others know", told, 20)
    first = the_runner(nodes)
    others = [node for node in nodes if node is not first]
    assert len({state(node)["node"] for node in nodes}) == 1
    far = Collector(remote.port, "up/#")
    load = Load(others[0].port, "up/load", qos)
    wait_for("the load flows", lambda: len(far.payloads) > 100, DEADLINE)
    remote.signal(signal.SIGSTOP)
    before = len(load.acknowledged)
    wait_for("messages wait", lambda: load.has_sent(before + 300), DEADLINE)
    first.kill()
    remote.signal(signal.SIGCONT)
    wait_for("another node runs it", lambda: any(runs(node) for node in others), 20)
    count = len(load.acknowledged)
    wait_for("publishers go on", lambda: load.has_sent(count + 200), DEADLINE)
    sent = load.stop()
    wait_for("everything is there", lambda: set(sent) <= set(far.payloads), DEADLINE)
    far.stop()
    check(sent, far.payloads, exactly=qos == 2)


def test_messages_come_in_from_the_remote_broker(make_site: Callable[..., list[Node]], remote: Remote) -> None:
    """DP-05, O10: commands from the cloud, with quality of service and retain; those sent while the site is away come later."""
    far = remote.client("far")
    far.publish("site-1/commands/kept", "before", qos=1, retain=True)
    sections = bridge(remote, direction="in", **{"from": ["site-1/commands/#"]}, strip="site-1", topic="cloud")
    (node,) = make_site(sections)
    wait_for("the bridge runs", lambda: runs(node))
    wait_for("what is retained has come", lambda: metric(node.http, "sedge_bridge_messages_in_total") >= 1)
    near = node.client("near")
    near.subscribe("cloud/#", qos=2)
    near.message("before", topic="cloud/commands/kept", retain=True)
    for qos in range(3):
        far.publish("site-1/commands/7", f"text {qos}", qos=qos, props={"user_property": [("a", "b")]})
        got = near.message(f"text {qos}", topic="cloud/commands/7", qos=qos, retain=False)
        assert ("a", "b") in got.props["user_property"]
    near.disconnect()
    node.stop()
    for number in range(50):
        far.publish("site-1/commands/7", str(number), qos=2)
    node.start()
    near = node.client("near")
    for number in range(50):
        near.message(str(number), topic="cloud/commands/7", qos=2)
    near.ping()
    near.nothing()


@pytest.mark.parametrize("qos", [1, 2])
def test_what_comes_in_survives_the_bridging_node(make_site: Callable[..., list[Node]], remote: Remote, qos: int) -> None:
    """DP-05, MQ-18: kill -9 of the node that runs the bridge under load from the other end: nothing acknowledged there is lost here."""
    nodes = make_site(bridge(remote, direction="in"), 3)
    first = the_runner(nodes)
    others = [node for node in nodes if node is not first]
    near = Collector(others[0].port, "up/#")
    load = Load(remote.port, "up/load", qos)
    wait_for("the load flows", lambda: len(near.payloads) > 200, DEADLINE)
    first.kill()
    wait_for("another node runs it", lambda: any(runs(node) for node in others), 20)
    count = len(load.acknowledged)
    wait_for("the load goes on", lambda: load.has_sent(count + 200), DEADLINE)
    sent = load.stop()
    wait_for("everything is there", lambda: set(sent) <= set(near.payloads), DEADLINE)
    near.stop()
    check(sent, near.payloads, exactly=qos == 2)


@pytest.mark.parametrize("version", ["5.0", "3.1.1"])
def test_both_ways_on_the_same_topics_nothing_goes_round(
    make_site: Callable[..., list[Node]], remote: Remote, version: str
) -> None:
    """MQ-18: a bridged topic crosses once."""
    (node,) = make_site(bridge(remote, direction="both", version=version))
    wait_for("the bridge runs", lambda: runs(node))
    ends = [node.client("near"), remote.client("far")]
    for end in ends:
        end.subscribe("up/#", qos=1)
    for number, end in enumerate(ends):
        end.publish("up/a", str(number), qos=1)
    for end in ends:
        assert sorted(bytes(end.message(topic="up/a").payload) for _ in ends) == [b"0", b"1"]
    # Whatever went round would be there before these.
    for end in ends:
        end.publish("up/last", "", qos=1)
    for end in ends:
        assert [end.message().topic for _ in ends] == ["up/last", "up/last"]


def test_a_circle_of_bridges_ends(make_site: Callable[..., list[Node]], binary: Path, tmp_path: Path) -> None:
    """MQ-18: two sites that send each other everything; each message crosses max_hops bridges and no more."""
    ports = [free_base(1) for _ in range(2)]
    sites = [Node(binary, tmp_path / f"circle{number}", "memory") for number in range(2)]
    for site, base, other in zip(sites, ports, reversed(ports), strict=True):
        site.port, site.http, site.cluster = base
        site.extra = f'[bridge.other]\nkind = "mqtt"\naddress = ["{HOST}:{other[0]}"]\nfrom = ["#"]\nmax_hops = 2\n'
    try:
        for site in sites:
            site.start()
        wait_for("both bridges run", lambda: all(runs(site) for site in sites))
        near, far = (site.client("end", clean=True) for site in sites)
        near.subscribe("#", qos=1)
        far.subscribe("#", qos=1)
        near.publish("a", "x", qos=1)
        wait_for("it is dropped", lambda: sum(metric(site.http, "sedge_bridge_dropped_total") for site in sites) == 1)
        assert [near.message().topic for _ in range(2)] == ["a", "a"]
        far.message("x", topic="a")
        for end in (near, far):
            end.nothing()
        assert any("max_hops" in (state(site)["last_error"] or "") for site in sites)
    finally:
        for site in sites:
            site.stop()


def test_the_next_address_takes_over(make_site: Callable[..., list[Node]], remote: Remote, tmp_path: Path) -> None:
    """MQ-18: several addresses."""
    second = Remote(tmp_path, free_base(1)[0]).start()
    try:
        (node,) = make_site(bridge(remote, address=[f"{HOST}:{remote.port}", f"{HOST}:{second.port}"]))
        wait_for("the bridge runs", lambda: state(node)["address"] == f"{HOST}:{remote.port}")
        remote.kill()
        far = second.client("far")
        far.subscribe("up/#", qos=1)
        node.client("near").publish("up/a", "x", qos=1)
        far.message("x", topic="up/a", timeout=20)
        assert state(node)["address"] == f"{HOST}:{second.port}"
    finally:
        second.stop()


def test_a_broker_with_tls_and_accounts(make_site: Callable[..., list[Node]], tmp_path: Path) -> None:
    """MQ-18: authority, client certificate, user name and password; a wrong password is told."""
    authority(tmp_path, "ca")
    sign(tmp_path, "ca", "far", "localhost")
    passwords = tmp_path / "passwords"
    subprocess.run(["mosquitto_passwd", "-c", "-b", str(passwords), "site", "right"], check=True, timeout=20)
    port = free_base(1)[0]
    far = Remote(tmp_path, port, (
        f"user root\ncafile {tmp_path}/ca.crt\ncertfile {tmp_path}/far.crt\nkeyfile {tmp_path}/far.key\npassword_file {passwords}\n")).start()
    secret = tmp_path / "secret"
    secret.write_text("wrong\n")
    sections = bridge(
        far, address=[f"localhost:{port}"], tls=True, ca_file=f"{tmp_path}/ca.crt", username="site", password_file=str(secret),
        reconnect_max="500ms")
    try:
        (node,) = make_site(sections)
        wait_for("the password is wrong", lambda: "0x8" in (state(node)["last_error"] or ""), 20)
        secret.write_text("right\n")
        wait_for("the bridge runs", lambda: runs(node), 20)
        node.client("near").publish("up/a", "x", qos=2)
        wait_for("the message is there", lambda: metric(node.http, "sedge_bridge_messages_out_total") == 1)
    finally:
        far.stop()


def test_a_restart_without_the_section_keeps_what_waits_and_takes_nothing_new(make_site: Callable[..., list[Node]], remote: Remote) -> None:
    """DP-03: the buffer of a bridge that is not configured does not grow; messages that waited go when the section is there again."""
    section = bridge(remote)
    (node,) = make_site(section)
    wait_for("the bridge runs", lambda: state(node)["state"] == "running")
    remote.kill()
    wait_for("the bridge has lost its other end", lambda: state(node)["state"] == "down")
    node.client("near", clean=True).publish("up/x", "before", qos=1)
    node.kill()
    node.extra = ""
    node.start()
    node.client("near", clean=True).publish("up/x", "nobody wants it", qos=1)
    assert metric(node.http, "sedge_queued_messages") == 1
    node.kill()
    remote.start()
    far = remote.client("far")
    far.subscribe("up/#", qos=1)
    node.extra = section
    node.start()
    assert far.message(timeout=20).payload == b"before"
    wait_for("the bridge runs again", lambda: state(node)["state"] == "running")
    node.client("near", clean=True).publish("up/x", "after", qos=1)
    assert far.message(timeout=20).payload == b"after"
