"""Rules: selection, windows and aggregates (DP-02)."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from client import Client
from cluster import HOST, free_base, get, metric, wait_for
from durable import Node
from mqttwire import V5, T
from remote import Collector, Load, Remote

MEAN = """
[rule.mean-10s]
from = ["plant/+/temperature"]
to = "plant/{1}/mean"
where = "payload.value > 0"
group_by = ["topic"]
window = { tumbling = "10s" }
select = { value = "mean(payload.value)", n = "count()" }
"""


def rule_test(binary: Path, tmp_path: Path, toml: str, samples: list[dict[str, Any]], *flags: str) -> subprocess.CompletedProcess[str]:
    """`sedge rule test` with these rules and samples."""
    file = tmp_path / "rules.toml"
    file.write_text(toml)
    lines = "".join(json.dumps(sample) + "\n" for sample in samples)
    return subprocess.run([str(binary), "rule", "test", str(file), *flags], input=lines, capture_output=True, text=True, timeout=20)


def test_samples_show_what_a_rule_puts_out(binary: Path, tmp_path: Path) -> None:
    """DP-02: the mean of ten seconds, per topic; messages that are not selected have no part in it."""
    values = [("a", 20, 1_000), ("b", 7, 2_000), ("a", -300, 3_000), ("a", 21, 9_999), ("a", 40, 10_000)]
    samples = [{"topic": f"plant/{name}/temperature", "payload": {"value": value}, "time": time} for name, value, time in values]
    samples.append({"topic": "plant/a/pressure", "payload": {"value": 1000}, "time": 10_001})
    done = rule_test(binary, tmp_path, MEAN, samples, "--counters")
    assert done.returncode == 0, done.stderr
    assert [json.loads(line) for line in done.stdout.splitlines()] == [
        {"rule": "mean-10s", "topic": "plant/a/mean", "payload": {"value": 20.5, "n": 2}, "qos": 2, "retain": False, "time": 10_000},
        {"rule": "mean-10s", "topic": "plant/b/mean", "payload": {"value": 7, "n": 1}, "qos": 2, "retain": False, "time": 10_000},
        {"rule": "mean-10s", "topic": "plant/a/mean", "payload": {"value": 40, "n": 1}, "qos": 2, "retain": False, "time": 20_000},
    ]
    assert "mean-10s: seen 6, selected 4, outputs 3" in done.stderr


@pytest.mark.parametrize(("toml", "message"), [
    ("[rule.r]\nwhere = \"payload.v > 0 an true\"\n", "rules.toml:2:24: rule.r.where: an is not expected here"),
    ("[rule.r]\nwindw = 1\n", "rules.toml:2:1: rule.r.windw: unknown key; did you mean window?"),
    ("[rule.r]\nfrom = \"a/+\"\nto = \"b/{2}\"\n", "rules.toml:3:10: rule.r.to: topics of [\"a/+\"] have no level 2: their levels are 0 to 1"),
    ("[rule.r]\nwindow = { tumbling = \"0s\" }\nselect = \"count()\"\n", "rules.toml:2:23: rule.r.window.tumbling: 0s is not between 1ms and 7d"),
    ("[rule.r]\nselect = { m = \"meen(payload.v)\" }\n", "rules.toml:2:17: rule.r.select.m: there is no function meen; did you mean mean?"),
    ("[rule.R]\n", "rules.toml:1:7: rule.R: \"R\" is no name of a rule: 1 to 32 lower-case letters, digits, - and _"),
    ("[node]\nname = \"x\"\n", "rules.toml: has no rule: write [rule.NAME]"),
])
def test_a_wrong_rule_is_refused_with_place_key_and_what_to_do(binary: Path, tmp_path: Path, toml: str, message: str) -> None:
    """The same words from `sedge rule test` and from `sedge config check`."""
    done = rule_test(binary, tmp_path, toml, [])
    assert (done.returncode, done.stdout) == (2, ""), done
    assert message in done.stderr, done.stderr
    if "rule." in toml:
        checked = subprocess.run([str(binary), "config", "check", "-c", str(tmp_path / "rules.toml")], capture_output=True, text=True, timeout=20)
        assert checked.returncode == 2 and message in checked.stderr, checked.stderr


def test_a_sample_that_is_none_is_named(binary: Path, tmp_path: Path) -> None:
    """Number of the line and its mistake."""
    done = rule_test(binary, tmp_path, MEAN, [{"topic": "a", "payload": 1}, {"topic": "a/#", "payload": 1}])
    assert done.returncode == 1 and "sample 2: \"a/#\"" in done.stderr, done.stderr
    unknown = rule_test(binary, tmp_path, MEAN, [], "--rule", "other")
    assert unknown.returncode == 2 and "it has mean-10s" in unknown.stderr, unknown.stderr


SUMS = """
[rule.sums]
from = ["numbers"]
to = "sums"
window = { count = 10 }
select = "sum(payload)"
"""


def state(node: Node, number: int = 0) -> dict[str, Any]:
    """A rule, as the API of the node lists it."""
    found: dict[str, Any] = get(f"http://{HOST}:{node.http}/api/v1/rules")["rules"][number]
    return found


def runner(nodes: list[Node]) -> Node:
    """The node that runs the rule, when it does and all others agree."""
    def found() -> list[Node]:
        states = [(node, state(node)["state"]) for node in nodes]
        agreed = sorted(one for _, one in states) == ["elsewhere"] * (len(nodes) - 1) + ["running"]
        return [node for node, one in states if agreed and one == "running"]

    return wait_for("one node runs the rule", found, 20)[0]


def sums(count: int) -> list[str]:
    """The sums that the rule publishes of the numbers below `count`."""
    return [str(sum(range(start, start + 10))) for start in range(0, count - 9, 10)]


def test_a_mean_goes_to_subscribers_at_other_nodes(make_site: Callable[..., list[Node]], binary: Path) -> None:
    """DP-02: one rule, once in the whole cluster; API, command and metrics tell which node runs it and what it has counted."""
    nodes = make_site(MEAN.replace("10s", "1s"), 3, "memory")
    place = runner(nodes)
    others = [node for node in nodes if node is not place]
    far = Client(HOST, others[0].port, V5, timeout=10)
    far.connect("far")
    far.subscribe("plant/+/mean", qos=2)
    near = others[1].client("near", clean=True)
    for value in (20, 21, 22):
        near.publish("plant/a/temperature", json.dumps({"value": value}), qos=1)
    outputs: list[dict[str, Any]] = []
    while sum(output["n"] for output in outputs) < 3:
        got = far.message(timeout=10, topic="plant/a/mean", retain=False)
        outputs.append(json.loads(got.payload))
        assert ("sedge-rule", "mean-1s") in [tuple(pair) for pair in got.props["user_property"]]
    assert sum(output["n"] * output["value"] for output in outputs) == 63
    told = wait_for("the rule has counted", lambda: state(place)["outputs"] == len(outputs) and state(place))
    assert (told["seen"], told["selected"], told["node"]) == (3, 3, place.status()["node"]), told
    assert metric(place.http, "sedge_rule_selected_total", rule="mean-1s") == 3
    assert metric(others[0].http, "sedge_rule_running", rule="mean-1s") == 0
    shown = subprocess.run([str(binary), "rules", "--api", f"http://{HOST}:{place.http}"], capture_output=True, text=True, timeout=20)
    assert "mean-1s" in shown.stdout and "running" in shown.stdout, shown


def test_a_rule_does_not_take_what_it_puts_out(make_site: Callable[..., list[Node]]) -> None:
    """DP-02: neither at first nor at second hand; others do."""
    rules = "".join(f"[rule.r{number}]\nfrom = [\"loop/#\"]\nto = \"loop/r{number}\"\n" for number in range(2))
    (node,) = make_site(rules, durability="memory")
    wait_for("both run", lambda: all(state(node, number)["state"] == "running" for number in range(2)))
    client = node.client("c", clean=True)
    client.subscribe("loop/#", qos=2)
    client.publish("loop/begin", "x", qos=1)
    got = sorted(client.message("x", timeout=10).topic for _ in range(5))
    assert got == ["loop/begin", "loop/r0", "loop/r0", "loop/r1", "loop/r1"]
    wait_for("they have seen everything", lambda: all(state(node, number)["seen"] == 5 for number in range(2)))
    assert [(state(node, number)["outputs"], state(node, number)["loops"]) for number in range(2)] == [(2, 3), (2, 3)]
    client.nothing()


def test_a_rule_goes_on_in_the_middle_of_its_window_after_kill_9(make_site: Callable[..., list[Node]]) -> None:
    """DP-02, DP-03: one node with a journal; each message counts once."""
    (node,) = make_site(SUMS)
    client = node.client("c", clean=True)
    client.subscribe("sums", qos=2)
    wait_for("it runs", lambda: state(node)["state"] == "running")
    for number in range(15):
        client.publish("numbers", str(number), qos=number % 2 + 1)
    assert client.message(timeout=10).payload == b"45"
    wait_for("it has counted all", lambda: state(node)["seen"] == 15)
    node.kill()
    node.start()
    client = node.client("c", clean=True)
    client.subscribe("sums", qos=2)
    for number in range(15, 20):
        client.publish("numbers", str(number), qos=2)
    assert client.message(timeout=10).payload == b"145"
    client.nothing()


def test_state_larger_than_a_packet_survives_kill_9(make_site: Callable[..., list[Node]]) -> None:
    """DP-02, DP-03: three megabytes of open windows; every one has its three messages, and comes once."""
    devices = 4000
    (node,) = make_site(
        "[rule.big]\nfrom = [\"in\"]\nto = \"out\"\ngroup_by = [\"payload.id\"]\nwindow = { count = 3 }\n"
        "select = { id = \"payload.id\", n = \"count()\", last = \"last(payload.text)\" }\n")
    collector = None
    for round_ in range(3):
        wait_for("it runs", lambda: state(node)["state"] == "running")
        client = node.client("c", clean=True)
        if round_ == 2:
            collector = Collector(node.port, "out")
        sent = acknowledged = 0
        while acknowledged < devices:
            while sent < devices and sent - acknowledged < 200:
                client.start_publish("in", json.dumps({"id": f"device-{sent}", "text": "x" * 300}), qos=1)
                sent += 1
            client.expect(T.PUBACK)
            acknowledged += 1
        if round_ < 2:
            # More than these, where the last kill came before what was counted last was safe: that came to the rule once more.
            wait_for("it has counted them", lambda: state(node)["seen"] >= devices, 30)
            assert state(node)["state_bytes"] > 3_000_000
            node.kill()
            node.start()
    assert collector
    wait_for("all windows have come", lambda: len(collector.payloads) >= devices, 30)
    collector.stop()
    outputs = [json.loads(payload) for payload in collector.payloads]
    assert len({output["id"] for output in outputs}) == len(outputs) == devices and {output["n"] for output in outputs} == {3}


def test_an_acknowledged_message_counts_once_when_the_nodes_that_run_the_rule_are_killed(make_site: Callable[..., list[Node]]) -> None:
    """DP-02, DP-03: kill -9 under load, three times; every window has its ten numbers, and comes once."""
    nodes = make_site(SUMS, 3)
    place = runner(nodes)
    others = [node for node in nodes if node is not place]
    collector, load = Collector(others[0].port, "sums"), Load(others[1].port, "numbers", qos=2)
    sent_so_far = 0

    def more(count: int) -> None:
        nonlocal sent_so_far
        sent_so_far = len(load.acknowledged) + count
        wait_for("numbers go on", lambda: load.has_sent(sent_so_far), 60)

    for _ in range(3):
        more(200)
        place.kill()
        runner(others)
        more(200)
        place.start()
        # Where a rule runs depends on who is there alone: it comes back.
        wait_for("it runs where it did", lambda: state(place)["state"] == "running", 30)
    sent = load.stop()
    assert sent == [str(number) for number in range(len(sent))]
    wait_for("all windows have come", lambda: len(collector.payloads) >= len(sums(len(sent))), 30)
    client = nodes[0].client("last", clean=True)
    client.publish("sums", "end", qos=1)
    wait_for("nothing comes behind them", lambda: "end" in collector.payloads, 20)
    collector.stop()
    assert collector.payloads == [*sums(len(sent)), "end"]


def test_what_belongs_to_rules_is_not_for_clients(make_site: Callable[..., list[Node]]) -> None:
    """Nobody takes a rule's session over or writes its log."""
    (node,) = make_site(SUMS, durability="memory")
    wait_for("it runs", lambda: state(node)["state"] == "running")
    client = Client(HOST, node.port, V5, timeout=10)
    assert client.try_connect("$rule/sums/log").reason == 0x85
    client = node.client("c", clean=True)
    pid = client.next_pid()
    client.start_publish("$rule/sums/log", "junk", qos=1, pid=pid)
    assert client.expect(T.PUBACK, pid=pid).reason == 0x87
    assert state(node)["state"] == "running"


def test_a_bridge_sends_what_its_rule_puts_out(make_site: Callable[..., list[Node]], tmp_path: Path) -> None:
    """DP-02, DP-04: sums of ten go to the remote broker instead of the numbers; topics that are not selected never leave."""
    remote = Remote(tmp_path, free_base(1)[0]).start()
    try:
        rule = "[rule.sums]\ngroup_by = [\"topic\"]\nwindow = { count = 10 }\nselect = \"sum(payload)\"\n"
        bridge = f"[bridge.cloud]\nkind = \"mqtt\"\naddress = [\"{HOST}:{remote.port}\"]\nfrom = [\"plant/#\"]\ntopic = \"site\"\nrule = \"sums\"\n"
        (node,) = make_site(bridge + rule)
        wait_for("both run", lambda: state(node)["state"] == "running"
                 and get(f"http://{HOST}:{node.http}/api/v1/bridges")["bridges"][0]["state"] == "running")
        far = remote.client("far")
        far.subscribe("#", qos=2)
        near = node.client("near", clean=True)
        for number in range(20):
            near.publish("plant/a", str(number), qos=2)
            near.publish("other/a", str(number), qos=2)
        got = [far.message(timeout=10) for _ in range(2)]
        assert [(one.topic, one.payload) for one in got] == [("site/plant/a", b"45"), ("site/plant/a", b"145")]
        far.nothing()
    finally:
        remote.stop()


@pytest.mark.parametrize(("toml", "message"), [
    ("[bridge.b]\nrule = \"sumz\"\n[rule.sums]\nselect = \"qos\"\n", "rules.toml:2:8: bridge.b.rule: there is no [rule.sumz]; did you mean \"sums\"?"),
    ("[bridge.b]\nrule = \"r\"\n[rule.r]\nfrom = \"a\"\nto = \"b\"\n", "bridge.b.rule: [rule.r] has from and to of its own"),
    ("[rule.r]\nselect = \"qos\"\n", "rules.toml:1:7: rule.r: has no from and to, and no bridge names it"),
])
def test_bridges_and_rules_fit_each_other(binary: Path, tmp_path: Path, toml: str, message: str) -> None:
    """The error names the mistake, its place, and the text to write."""
    file = tmp_path / "rules.toml"
    file.write_text(toml)
    checked = subprocess.run([str(binary), "config", "check", "-c", str(file)], capture_output=True, text=True, timeout=20)
    assert checked.returncode == 2 and message in checked.stderr, checked.stderr
