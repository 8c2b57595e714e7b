"""Sparkplug B: births that the cluster keeps, and rules that read payloads. The edge node is the client library of Eclipse Tahu."""

from __future__ import annotations

import json
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from cluster import HOST, get, metric, wait_for
from durable import Node

JS = Path(__file__).parent / "js/sparkplug.mjs"
CERTIFICATES = "[sparkplug]\ncertificates = true\n"
RULE = """
[rule.values]
from = ["spBv1.0/site/NDATA/+", "spBv1.0/site/DDATA/+/+"]
decode = "sparkplug"
to = "plant/{3}"
select = { t = "payload.values.Temperature", p = "payload.values.Pressure" }
"""


class Edge:
    """A running edge node."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process, self.births = process, 0
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self.process.stdout
        for line in self.process.stdout:
            self.births += line.strip() == "birth"

    def send(self, number: int) -> None:
        """Both metrics take this value, one with the other sign."""
        assert self.process.stdin
        self.process.stdin.write(f"{number}\n")
        self.process.stdin.flush()


@contextmanager
def edge_node(node: Node, name: str = "edge") -> Iterator[Edge]:
    """An edge node that is born."""
    command = ["node", str(JS), f"mqtt://{HOST}:{node.port}", "site", name]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            edge = Edge(process)
            wait_for("the edge node is born", lambda: edge.births == 1, 20)
            yield edge
        finally:
            process.kill()


def rule(node: Node) -> dict[str, Any]:
    """The rule, as the API of the node lists it."""
    found: list[dict[str, Any]] = get(f"http://{HOST}:{node.http}/api/v1/rules")["rules"]
    return found[0] if found else {"state": "none"}


def runner(nodes: list[Node]) -> Node:
    """The node that runs the rule."""
    def found() -> list[Node]:
        states = [(node, rule(node)["state"]) for node in nodes]
        agreed = sorted(state for _, state in states) == ["elsewhere"] * (len(nodes) - 1) + ["running"]
        return [node for node, state in states if agreed and state == "running"]

    return wait_for("one node runs the rule", found, 30)[0]


def certificates(node: Node) -> set[str]:
    """Topics of the births that this node keeps."""
    kept = get(f"http://{HOST}:{node.http}/api/v1/retained?filter=%24sparkplug%2Fcertificates%2F%23")
    return {message["topic"] for message in kept["messages"]}


def test_births_are_kept_at_all_nodes_and_outlive_a_restart(make_site: Callable[..., list[Node]]) -> None:
    """A Sparkplug Aware MQTT Server: NBIRTH and DBIRTH, retained below $sparkplug/certificates, for hosts that come later."""
    nodes = make_site(CERTIFICATES, 3)
    wanted = {"$sparkplug/certificates/spBv1.0/site/NBIRTH/edge", "$sparkplug/certificates/spBv1.0/site/DBIRTH/edge/device"}
    with edge_node(nodes[0]):
        for node in nodes:
            wait_for("the births are there", lambda at=node: certificates(at) == wanted)
        host = nodes[1].client("host", clean=True)
        host.subscribe("$sparkplug/certificates/#", qos=1)
        assert {host.message(retain=True).topic for _ in range(2)} == wanted
    for node in nodes:
        node.kill()
    starts = [threading.Thread(target=node.start) for node in nodes]
    for start in starts:
        start.start()
    for start in starts:
        start.join()
    assert all(certificates(node) == wanted for node in nodes)


def test_values_have_the_names_of_the_birth_and_a_successor_knows_them(make_site: Callable[..., list[Node]]) -> None:
    """Births outlive the node that runs the rule: its successor reads aliases and asks nobody."""
    nodes = make_site(CERTIFICATES + RULE, 3)
    place = runner(nodes)
    others = [node for node in nodes if node is not place]
    host = others[0].client("host", clean=True)
    host.subscribe("plant/#", qos=2)
    with edge_node(others[1]) as edge:
        edge.send(21)
        wanted = [{"t": 21, "p": None}, {"t": None, "p": -21}]
        assert [json.loads(host.message(timeout=10).payload) for _ in range(2)] == wanted
        assert metric(place.http, "sedge_rule_births", rule="values") == 1
        place.kill()
        after = runner(others)
        edge.send(22)
        wanted = [{"t": 22, "p": None}, {"t": None, "p": -22}]
        assert [json.loads(host.message(timeout=10).payload) for _ in range(2)] == wanted
        told = rule(after)
        assert (told["rebirths"], told["unknown_metrics"], edge.births) == (0, 0, 1), told


def test_an_unknown_alias_asks_the_edge_node_for_its_birth(make_site: Callable[..., list[Node]]) -> None:
    """A rule that has not heard the birth sends Node Control/Rebirth, once."""
    (node,) = make_site("")
    with edge_node(node) as edge:
        node.extra = RULE
        node.reload()
        runner([node])
        host = node.client("host", clean=True)
        host.subscribe("plant/#", "spBv1.0/+/NCMD/#", qos=1)
        edge.send(1)
        asked = host.message(topic="spBv1.0/site/NCMD/edge", timeout=10)
        assert (asked.qos, asked.retain) == (0, False) and b"Node Control/Rebirth" in asked.payload
        wait_for("it is born again", lambda: edge.births == 2)
        for _ in range(2):
            host.message('{"t":null,"p":null}', timeout=10)
        wait_for("the rule has heard both births", lambda: rule(node)["seen"] == 4 and rule(node)["unknown_metrics"] == 2)
        edge.send(2)
        host.message('{"t":2,"p":null}', timeout=10)
        host.message('{"t":null,"p":-2}', timeout=10)
        assert (rule(node)["rebirths"], edge.births) == (1, 2)
        node.client("evil", clean=True).publish("spBv1.0/site/NDATA/edge", "no payload of Sparkplug", qos=1)
        wait_for("it is counted", lambda: rule(node)["undecodable"] == 1)


def test_a_sample_of_sparkplug_is_decoded(binary: Path, tmp_path: Path) -> None:
    """`sedge rule test` reads payloads as `sedge sub --json` prints them, and shows what would be asked for."""
    file = tmp_path / "rules.toml"
    file.write_text(RULE)
    birth = bytes([0x12, 17, 0x0A, 11, *b"Temperature", 0x10, 1, 0x20, 9])
    data = bytes([0x12, 7, 0x10, 1, 0x65, 0, 0, 0xAC, 0x41])
    samples = [("NDATA/e", data), ("NBIRTH/e", birth), ("NDATA/e", data)]
    lines = "".join(json.dumps({"topic": f"spBv1.0/site/{topic}", "payload_hex": payload.hex(), "time": 1}) + "\n" for topic, payload in samples)
    done = subprocess.run([str(binary), "rule", "test", str(file)], input=lines, capture_output=True, text=True, timeout=20)
    outputs = [json.loads(line) for line in done.stdout.splitlines()]
    assert [output["topic"] for output in outputs] == ["spBv1.0/site/NCMD/e", "plant/e", "plant/e"], done
    assert [output["payload"] for output in outputs[1:]] == [{"t": None, "p": None}, {"t": 21.5, "p": None}]
    file.write_text(RULE.replace("sparkplug", "sparkplog"))
    done = subprocess.run([str(binary), "rule", "test", str(file)], input="", capture_output=True, text=True, timeout=20)
    assert done.returncode == 2 and "rules.toml:4:10: rule.values.decode: is \"sparkplug\", not \"sparkplog\"" in done.stderr, done
