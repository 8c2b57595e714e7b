"""Rules with a jq program (DP-02): their output, and that no program stalls a node. Most tests need a build with the feature."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from cluster import metric, wait_for
from durable import Node
from remote import Collector, Load
from test_rules import rule_test, runner, state

CONVERT = r"""
[rule.convert]
from = ["plant/+/temperature"]
to = "plant/{1}/short"
jq = '.payload | select(.temperature > 0) | {t: .temperature, unit: "C"}, (.tags // [])[]'
"""


@pytest.fixture(autouse=True)
def built_with_jq(request: pytest.FixtureRequest, binary: Path) -> None:
    """Skips tests that do not fit this build, with or without jq."""
    has = subprocess.run([str(binary), "jq-worker", "--help"], capture_output=True, timeout=20).returncode == 0
    if has == ("build_without" in request.node.name):
        pytest.skip(f"this build has {'' if has else 'no '}jq")


def children(node: Node) -> list[int]:
    """The processes that the node has started."""
    pid = node.process.pid
    return [int(child) for task in Path(f"/proc/{pid}/task").iterdir() for child in (task / "children").read_text().split()]


def test_a_build_without_jq_says_how_to_get_it(binary: Path, tmp_path: Path) -> None:
    """DP-02: key, feature and what to do."""
    done = rule_test(binary, tmp_path, CONVERT, [])
    assert done.returncode == 2 and "rule.convert.jq: this program is built without jq" in done.stderr and "--features jq" in done.stderr, done


def test_samples_show_what_a_program_makes_of_them(binary: Path, tmp_path: Path) -> None:
    """DP-02: none, one, several; strings without their quotes, texts that are no JSON, numbers as they were written."""
    payloads = [{"temperature": 21.5}, {"temperature": -1}, {"temperature": 3, "tags": ["a b", 7]}, "no JSON object"]
    done = rule_test(binary, tmp_path, CONVERT, [{"topic": "plant/x/temperature", "payload": payload, "time": 5} for payload in payloads], "--counters")
    assert done.returncode == 0, done
    outputs = [json.loads(line) for line in done.stdout.splitlines()]
    assert [(output["topic"], output["payload"]) for output in outputs] == [
        ("plant/x/short", {"t": 21.5, "unit": "C"}), ("plant/x/short", {"t": 3, "unit": "C"}), ("plant/x/short", "a b"), ("plant/x/short", 7)]
    assert "sample 4: convert: jq: " in done.stderr and "jq failed 1, jq over budget 0" in done.stderr, done.stderr


@pytest.mark.parametrize(("jq", "message"), [
    (".payload | {t: }", ":2:22: rule.r.jq: expected"),
    (".payload | foo(1)", ":2:18: rule.r.jq: there is no filter foo"),
    ("now", "the time of the message is .time"),
    ("env.PATH", "a program looks at its message and nothing else"),
    ("input", "a program looks at its message and nothing else"),
    ("$ENV", "there is no variable $ENV"),
    ('import "a" as a; .', "modules cannot be imported"),
    ("(" * 5000, "has 5000 bytes; at most 4096"),
    ("(" * 4000, "has more than 256 brackets"),
])
def test_a_wrong_program_is_refused_with_its_place(binary: Path, tmp_path: Path, jq: str, message: str) -> None:
    """DP-02: the same words from `sedge rule test` and from `sedge config check`."""
    done = rule_test(binary, tmp_path, f"[rule.r]\njq = '{jq}'\n", [])
    assert done.returncode == 2 and message in done.stderr, done
    checked = subprocess.run([str(binary), "config", "check", "-c", str(tmp_path / "rules.toml")], capture_output=True, text=True, timeout=20)
    assert checked.returncode == 2 and message in checked.stderr, checked


@pytest.mark.parametrize("jq", [
    "def f: f; f", "def f: 1 + f; f", "range(1e12)", "repeat(.)", "[range(1e12)]", "last(range(1e12))", "first(range(1e12) | select(false))",
    "def f: try f catch f; f", "reduce range(1e9) as $i (\"x\"; . + .)", "\"x\" * 1e12", "[limit(1e9; repeat(1))] | length", "[.[]?, .] | until(false; .)",
    "reduce range(100000) as $i (0; [.])", "def f: [f]; f", "10 | until(false; . * .)", "[recurse([., .])]",
    "label $a | repeat(1) | empty", "reduce range(60) as $i ([0]; . + .)", "def f($x): f($x + 1); f(0)", "foreach repeat(1) as $x (0; . + $x; empty)",
])
def test_a_program_without_an_end_is_ended(binary: Path, tmp_path: Path, jq: str) -> None:
    """DP-02: by time, memory, depth or number; the message after it has its turn, and no process stays."""
    toml = f"[rule.r]\njq = '''if .payload == 1 then ({jq}) else .payload end'''\n"
    begun = time.monotonic()
    done = rule_test(binary, tmp_path, toml, [{"topic": "a", "payload": payload} for payload in (0, 1, 2)], "--counters")
    assert done.returncode == 0 and time.monotonic() - begun < 15, done
    assert [json.loads(line)["payload"] for line in done.stdout.splitlines()] == [0, 2], done
    assert "sample 2: r: jq: " in done.stderr and "outputs 2" in done.stderr, done.stderr
    assert "jq failed 1, jq over budget 0" in done.stderr or "jq failed 0, jq over budget 1" in done.stderr, done.stderr


def test_a_program_without_an_end_stalls_nobody(make_site: Callable[..., list[Node]]) -> None:
    """DP-02: each message that loops is given up and counted; the others arrive in order, clients notice nothing, one process is there at a time."""
    rule = "[rule.r]\nfrom = [\"in\"]\nto = \"out\"\njq = '''.payload | if . % 10 == 9 then last(range(1e12)) else . end'''\nmax_time = \"20ms\"\n"
    (node,) = make_site(rule)
    wait_for("it runs", lambda: state(node)["state"] == "running")
    collector = Collector(node.port, "out")
    client = node.client("c", clean=True)
    slowest = 0.0
    for number in range(60):
        begun = time.monotonic()
        client.publish("in", str(number), qos=1)
        slowest = max(slowest, time.monotonic() - begun)
    wait_for("all others have come", lambda: len(collector.payloads) >= 54, 60)
    wait_for("all have been counted", lambda: state(node)["jq_over_budget"] == 6)
    collector.stop()
    assert collector.payloads == [str(number) for number in range(60) if number % 10 != 9]
    told = state(node)
    assert (told["seen"], told["selected"], told["outputs"], told["jq_failed"]) == (60, 60, 54, 0), told
    assert "took more than 20 ms of a processor" in told["last_error"], told
    assert metric(node.http, "sedge_rule_jq_over_budget_total", rule="r") == 6
    assert slowest < 2, slowest
    assert len(children(node)) <= 1


def test_the_process_ends_with_its_node(make_site: Callable[..., list[Node]]) -> None:
    """DP-02: kill -9 of the node in the middle of a program that has no end; and of the process, which costs no message."""
    rule = "[rule.r]\nfrom = [\"in\"]\nto = \"out\"\njq = '''.payload | if . == 7 then last(range(1e12)) else . end'''\nmax_time = \"1s\"\n"
    (node,) = make_site(rule)
    wait_for("it runs", lambda: state(node)["state"] == "running")
    client = node.client("c", clean=True)
    client.subscribe("out", qos=2)
    for number in range(3):
        client.publish("in", str(number), qos=1)
        assert client.message(timeout=10).payload == str(number).encode()
        (worker,) = children(node)
        os.kill(worker, 9)
    client.publish("in", "5", qos=1)
    assert client.message(timeout=10).payload == b"5"
    (worker,) = children(node)
    client.publish("in", "7", qos=1)
    node.kill()
    wait_for("the process has ended", lambda: not Path(f"/proc/{worker}").exists())
    node.start()
    wait_for("the message is counted", lambda: state(node)["jq_over_budget"] == 1, 20)
    assert state(node)["jq_failed"] == 0


def test_each_message_counts_once_when_nodes_that_run_the_program_are_killed(make_site: Callable[..., list[Node]]) -> None:
    """DP-02, DP-03: kill -9 under load; each number comes twice, as the program says, in order, and never more."""
    nodes = make_site("[rule.twice]\nfrom = [\"numbers\"]\nto = \"twice\"\njq = '.payload, .payload'\n", 3)
    place = runner(nodes)
    others = [node for node in nodes if node is not place]
    collector, load = Collector(others[0].port, "twice"), Load(others[1].port, "numbers", qos=2)
    for _ in range(2):
        wait_for("numbers go on", lambda sent=len(load.acknowledged) + 200: load.has_sent(sent), 60)
        place.kill()
        runner(others)
        wait_for("numbers go on", lambda sent=len(load.acknowledged) + 200: load.has_sent(sent), 60)
        place.start()
        wait_for("it runs where it did", lambda: state(place)["state"] == "running", 30)
    sent = load.stop()
    wait_for("all have come", lambda: len(collector.payloads) >= 2 * len(sent), 30)
    collector.stop()
    assert collector.payloads == [number for number in sent for _ in range(2)]
