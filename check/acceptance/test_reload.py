"""Bridges and rules that come, change and go while the node runs: SIGHUP and `POST /api/v1/reload`."""

from __future__ import annotations

import json
import signal
import urllib.error
import urllib.request
from collections.abc import Callable
from typing import Any

import pytest
from cluster import HOST, get, metric, wait_for
from durable import Node
from mqttwire import T
from remote import Collector, Load, Remote
from test_bridging import DEADLINE, all_know, bridge, check, remote, runs  # noqa: F401 (fixtures)
from test_remote_acks import is_not_answered


def bridges(node: Node) -> list[dict[str, Any]]:
    """The node's bridges, as its API lists them."""
    found: list[dict[str, Any]] = get(f"http://{HOST}:{node.http}/api/v1/bridges")["bridges"]
    return found


def reload_over_http(node: Node) -> tuple[int, dict[str, Any]]:
    """Status and answer of `POST /api/v1/reload`."""
    request = urllib.request.Request(f"http://{HOST}:{node.http}/api/v1/reload", method="POST", headers={"X-Sedge": "1"})
    try:
        with urllib.request.urlopen(request, timeout=20) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)


def everywhere(nodes: list[Node], sections: str) -> None:
    """All nodes are given these sections, and have read them."""
    reads = [times_read(node) for node in nodes]
    for node in nodes:
        node.extra = sections
        node.reload()
    wait_for("all have read them", lambda: all(times_read(node) > before for node, before in zip(nodes, reads, strict=True)), DEADLINE)


def times_read(node: Node) -> int:
    """How often a node has read again which bridges and rules there are, as its log says."""
    return node.log.read_text().count("bridges and rules")


@pytest.mark.parametrize("count", [1, 3])
def test_bridges_come_change_and_go_under_load_without_losing_a_message(
    make_site: Callable[..., list[Node]], remote: Remote, count: int  # noqa: F811
) -> None:
    """MQ-18, DP-03: a bridge is added, gets another prefix, another filter more and another limit, and goes, while publishers go on."""
    nodes = make_site("", count)
    far = Collector(remote.port, "#")
    everywhere(nodes, bridge(remote))
    wait_for("the new bridge runs", lambda: all(bridges(node) for node in nodes) and all_know(nodes), DEADLINE)
    loads = [Load(nodes[-1].port, f"up/{qos}", qos) for qos in (1, 2)]
    changes = [{"topic": "site-1"}, {"topic": "site-2", "from": ["up/#", "more/#"]}, {"buffer": {"max_bytes": "1MiB"}, "max_inflight": 20}]
    for change in changes:
        counts = [len(load.acknowledged) for load in loads]
        wait_for("the load goes on", lambda c=counts: all(load.has_sent(before + 100) for load, before in zip(loads, c, strict=True)), DEADLINE)
        everywhere(nodes, bridge(remote, **change))
        prefix = f"{change['topic']}/" if "topic" in change else ""
        seen = len(far.topics)
        wait_for(f"{change} counts", lambda p=prefix, s=seen: any(topic.startswith(f"{p}up/") for topic in far.topics[s:]), DEADLINE)
        if "from" in change:
            nodes[0].client("near", clean=True).publish("more/x", "of the new filter", qos=1)
    for number, load in enumerate(loads):
        sent = load.stop()
        wait_for("everything is there", lambda s=sent, n=number: set(s) <= set(of(far, f"up/{n + 1}")), DEADLINE)
        check(sent, of(far, f"up/{number + 1}"), exactly=number == 1)
    wait_for("the new filter counts", lambda: of(far, "more/x") == ["of the new filter"], DEADLINE)
    everywhere(nodes, "")
    wait_for("the bridge is gone", lambda: not any(bridges(node) for node in nodes), DEADLINE)
    far.stop()


def of(far: Collector, topic: str) -> list[str]:
    """The payloads of a topic, with any prefix, that have arrived."""
    return [payload for at, payload in zip(far.topics, far.payloads, strict=False) if at.endswith(topic)]


def test_a_configuration_with_a_mistake_changes_nothing(make_site: Callable[..., list[Node]], remote: Remote) -> None:  # noqa: F811
    """MQ-18: file, line and what to do are in the answer and in the log; the bridge goes on."""
    (node,) = make_site(bridge(remote))
    wait_for("the bridge runs", lambda: runs(node), DEADLINE)
    node.extra = bridge(remote, qos=7)
    config = node.configure()
    status, answer = reload_over_http(node)
    (part,) = [one for one in answer["reloaded"] if one["what"] == "bridges and rules"]
    assert status == 422 and f"{config}:" in part["problem"] and "bridge.cloud.qos" in part["problem"], answer
    assert "bridge.cloud.qos" in node.log.read_text()
    far = remote.client("far")
    far.subscribe("up/#", qos=1)
    node.client("near", clean=True).publish("up/a", "x", qos=1)
    far.message("x", topic="up/a", timeout=DEADLINE)
    node.extra = bridge(remote, topic="y")
    node.configure()
    assert reload_over_http(node)[0] == 200
    wait_for("the bridge runs", lambda: runs(node), DEADLINE)
    far.subscribe("y/#", qos=1)
    node.client("near", clean=True).publish("up/a", "z", qos=1)
    far.message("z", topic="y/up/a", timeout=DEADLINE)


def test_who_is_waited_for_changes_too(make_site: Callable[..., list[Node]], remote: Remote) -> None:  # noqa: F811
    """DP-03: with `ack = "remote"` publishers wait from then on, and those that wait are answered when it goes."""
    nodes = make_site(bridge(remote, buffer={"full": "refuse"}), 3)
    wait_for("one runs the bridge", lambda: all_know(nodes), DEADLINE)
    everywhere(nodes, bridge(remote, buffer={"full": "refuse"}, ack="remote"))
    wait_for("it runs again", lambda: all_know(nodes), DEADLINE)
    publisher = nodes[0].client("publisher", clean=True)
    remote.signal(signal.SIGSTOP)
    pid = publisher.start_publish("up/a", "x", qos=1)
    wait_for("it waits", lambda: metric(nodes[0].http, "sedge_awaited_publications") == 1, DEADLINE)
    is_not_answered(publisher, 1.0)
    everywhere(nodes, bridge(remote, buffer={"full": "refuse"}))
    publisher.expect(T.PUBACK, timeout=DEADLINE, pid=pid)
    remote.signal(signal.SIGCONT)


@pytest.mark.parametrize("count", [1, 3])
def test_rules_come_change_and_go(make_site: Callable[..., list[Node]], count: int) -> None:
    """G: a rule counts from the reload on, with another condition after the next one; no input is lost in between."""
    rule = '[rule.hot]\nfrom = ["in/#"]\nto = "out/{1}"\nwhere = "payload.value >= LIMIT"\n'
    nodes = make_site("", count)
    reader, writer = nodes[0].client("reader", clean=True), nodes[-1].client("writer", clean=True)
    reader.subscribe("out/#", qos=1)
    rules = lambda node: get(f"http://{HOST}:{node.http}/api/v1/rules")["rules"]  # noqa: E731

    def told() -> bool:
        states = sorted(one["state"] for node in nodes for one in rules(node))
        return states == ["elsewhere"] * (count - 1) + ["running"]

    everywhere(nodes, rule.replace("LIMIT", "10"))
    wait_for("the rule runs", told, DEADLINE)
    for value in (5, 15):
        writer.publish("in/a", json.dumps({"value": value}), qos=1)
    reader.message(json.dumps({"value": 15}), topic="out/a", timeout=DEADLINE)
    everywhere(nodes, rule.replace("LIMIT", "20"))
    wait_for("the changed rule runs", lambda: told() and not any(one["seen"] for node in nodes for one in rules(node)), DEADLINE)
    for value in (15, 25):
        writer.publish("in/a", json.dumps({"value": value}), qos=1)
    reader.message(json.dumps({"value": 25}), topic="out/a", timeout=DEADLINE)
    everywhere(nodes, "")
    wait_for("the rule is gone", lambda: not any(rules(node) for node in nodes), DEADLINE)
    writer.publish("in/a", json.dumps({"value": 99}), qos=1)
    reader.nothing()
