"""Bridges and rules of a whole cluster in the dashboard, the API and `sedge bridges`, while the other end of a bridge is away and comes back."""

from __future__ import annotations

import contextlib
import json
import socket
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from client import Client
from cluster import HOST, get, metric, wait_for
from durable import Node
from mqttwire import V5
from test_dashboard import Browser, pytestmark

__all__ = ["pytestmark"]
RULE = '[rule.mean]\nfrom = ["plant/+/temperature"]\nto = "plant/{1}/mean"\ngroup_by = ["topic"]\nwindow = { tumbling = "1s" }\nselect = { value = "mean(payload.value)" }\n'
MESSAGES = 100
TAKEN = 40


class Sluggish:
    """An MQTT 3.1.1 broker that acknowledges as many QoS 1 publications as it is let, and no more."""

    def __init__(self) -> None:
        self.socket = socket.create_server((HOST, 0))
        self.port = self.socket.getsockname()[1]
        self.room = threading.Semaphore(0)
        self.taken = 0

    def absent(self) -> None:
        """Nobody listens on its port any more."""
        self.socket.close()

    def come(self) -> None:
        """Listens again."""
        self.socket = socket.create_server((HOST, self.port))
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self.socket.accept()
                threading.Thread(target=self._talk, args=[connection], daemon=True).start()

    def _talk(self, connection: socket.socket) -> None:
        reader = connection.makefile("rb")
        with contextlib.suppress(OSError, IndexError):
            while head := reader.read(1):
                length, shift = 0, 0
                while True:
                    byte = reader.read(1)[0]
                    length, shift = length | (byte & 0x7F) << shift, shift + 7
                    if byte < 0x80:
                        break
                body = reader.read(length)
                kind, qos = head[0] >> 4, head[0] >> 1 & 3
                if kind == 1:
                    connection.sendall(b"\x20\x02\x00\x00")
                elif kind == 3 and qos == 1:
                    threading.Thread(target=self._acknowledge, args=[connection, body[2 + int.from_bytes(body[:2]):][:2]], daemon=True).start()
                elif kind == 12:
                    connection.sendall(b"\xd0\x00")

    def _acknowledge(self, connection: socket.socket, number: bytes) -> None:
        self.room.acquire()
        self.taken += 1
        with contextlib.suppress(OSError):
            connection.sendall(b"\x40\x02" + number)


@pytest.fixture
def named(binary: Path, tmp_path: Path) -> Iterator[Callable[[str], list[Node]]]:
    """Three nodes with names, and these sections in the configuration of each."""
    nodes = [Node(binary, tmp_path / name, "journal", name=name) for name in ("attic", "cellar", "yard")]

    def start(sections: str) -> list[Node]:
        for node in nodes:
            node.seeds = [f"{HOST}:{other.cluster}" for other in nodes if other is not node]
            node.extra = sections
        for node in nodes:
            node.start()
        wait_for("they are linked", lambda: all(node.is_linked(2) for node in nodes), 30)
        return nodes

    yield start
    for node in nodes:
        node.stop()


def ask(node: Node, what: str, whom: str = "*") -> list[dict[str, Any]]:
    """The bridges or rules of these nodes."""
    found = get(f"http://{HOST}:{node.http}/api/v1/{what}?node={whom}")
    assert found["silent"] == []
    return list(found[what])


def test_a_bridge_that_falls_behind_and_catches_up(binary: Path, named: Callable[[str], list[Node]]) -> None:
    """OP-01, OP-02: which node runs it, what waits and since when, its way back, and a rule's counters, from a node that runs neither."""
    end = Sluggish()
    end.absent()
    bridge = f'[bridge.cloud]\nkind = "mqtt"\naddress = ["{HOST}:{end.port}"]\nversion = "3.1.1"\nfrom = ["up/#"]\nqos = 1\nreconnect_max = "1s"\n'
    nodes = named(bridge + RULE)

    def settled() -> list[dict[str, Any]]:
        """The bridge, once all three nodes name the same one as its own and that one has failed: nodes that have just met may change who runs it."""
        views = [ask(nodes[0], "bridges", node.status()["name"])[0] for node in nodes]
        agreed = {one["node"] for one in views} == {views[0]["node"]} != {None}
        return [one for one in views if agreed and one["state"] == "down" and one["last_error"]]

    cloud = wait_for("it has failed at one node", settled)[0]
    wait_for("the rule runs", lambda: ask(nodes[0], "rules")[0]["state"] == "running")
    assert [one["name"] for one in ask(nodes[1], "bridges")] == ["cloud"]
    own = {node.status()["node"]: node for node in nodes}
    runner = own[cloud["node"]]
    assert cloud["node_name"] == runner.status()["name"]
    assert ask(nodes[0], "bridges", cloud["node_name"])[0]["state"] == "down"
    watched = next(node for node in nodes if node is not runner)
    states = f"http://{HOST}:{watched.http}/api/v1/bridges"
    wait_for("it is known to run elsewhere", lambda: get(states)["bridges"][0]["state"] == "elsewhere")
    browser = Browser("behind", f"http://{HOST}:{watched.http}", ws=0, node=cloud["node_name"], messages=MESSAGES, taken=TAKEN)
    browser.until("down")
    with contextlib.closing(Client(HOST, watched.port, V5, timeout=20)) as speaker:
        speaker.connect("speaker")
        for number in range(MESSAGES):
            speaker.publish("up/x", str(number), qos=1)
        for value in (1, 2, "none"):
            speaker.publish("plant/a/temperature", json.dumps({"value": value}), qos=1)
    behind = wait_for("they wait", lambda: [one for one in ask(nodes[1], "bridges") if one["lag"] == MESSAGES and one["waits_seconds"] >= 2])[0]
    assert (behind["lag_most"], behind["messages_out"]) == (MESSAGES, 0) and behind["lag_bytes"] > MESSAGES and behind["failures"] > 0, behind
    assert metric(runner.http, "sedge_bridge_lag_seconds", bridge="cloud") >= 2
    shown = subprocess.run([str(binary), "bridges", "--api", f"http://{HOST}:{watched.http}"], capture_output=True, text=True, check=True, timeout=20).stdout
    assert all(part in shown for part in ("cloud", "down", str(cloud["node_name"]), f"{MESSAGES} (", " s)")), shown
    told = subprocess.run([str(binary), "rules", "--json", "--api", f"http://{HOST}:{watched.http}"], capture_output=True, text=True, check=True, timeout=20).stdout
    assert [one["name"] for one in json.loads(told)["rules"]] == ["mean"]
    browser.go_on()
    browser.until("waiting")
    end.come()
    end.room.release(TAKEN)
    browser.go_on()
    browser.until("catching up")
    assert end.taken == TAKEN
    end.room.release(MESSAGES)
    browser.go_on()
    browser.finish()
    after = wait_for("nothing waits", lambda: [one for one in ask(nodes[1], "bridges") if one["lag"] == 0])[0]
    assert (after["messages_out"], after["waits_seconds"], after["lag_most"]) == (MESSAGES, 0, 0), after
    end.absent()
