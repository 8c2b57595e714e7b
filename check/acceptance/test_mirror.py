"""A node beside a broker says whether it would have delivered the same (docs/own-broker.md, "Beside the broker")."""

from __future__ import annotations

import socket
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from broker import Sidecar
from client import Client
from cluster import HOST, metric, wait_for
from mqttwire import V5, V311

FILTERS = 'mirror_filters = ["#", "site/+/temp", "kept/#"]\n'
KINDS = ("missing", "extra", "qos", "retain", "order")


@pytest.fixture
def beside(binary: Path, tmp_path: Path) -> Iterator[Callable[..., Sidecar]]:
    """Makes a broker and a node beside it, neither of which runs yet."""
    made: list[Sidecar] = []

    def make(*lines: str) -> Sidecar:
        made.append(Sidecar(binary, tmp_path / "node", *lines, upstream='mode = "mirror"\n' + FILTERS))
        return made[-1]

    yield make
    for node in made:
        node.stop()
        node.broker.stop()


def direct(node: Sidecar, name: str, version: int = V5) -> Client:
    """A client of the broker."""
    client = Client(HOST, node.broker.port, version, timeout=20)
    client.connect(name)
    return client


def compared(node: Sidecar) -> dict[str, Any]:
    """The part of the status about the comparison."""
    found = node.upstream()["mirror"]
    assert isinstance(found, dict)
    return found


def differences(node: Sidecar) -> int:
    """How many there are."""
    found: dict[str, int] = compared(node)["differences"]
    assert sorted(found) == sorted(KINDS)
    return sum(found.values())


def test_a_broker_and_the_node_beside_it_deliver_the_same(beside: Callable[..., Sidecar]) -> None:
    """FT-02: messages of each QoS, by 3.1.1 and 5.0, retained ones of before, new and cleared ones, and a broker that is killed meanwhile: no
    differences; and the node lets no client in."""
    node = beside()
    node.broker.start()
    writers = [direct(node, f"writer-{version}", version) for version in (V311, V5)]
    for number in range(10):
        writers[0].publish(f"kept/{number}", b"before", qos=1, retain=True)
    node.start()
    # Both filters that match find the retained messages.
    wait_for("the retained messages are compared", lambda: compared(node)["alike"] == 20, 20)
    with socket.socket() as probe:
        assert probe.connect_ex((HOST, node.port)) != 0, "nobody is served"
    for number in range(300):
        writer = writers[number % 2]
        writer.publish("site/a/temp", str(number).encode(), qos=number % 3)
        writer.publish("other", str(number).encode(), qos=number % 3)
    writers[1].publish("kept/0", b"after", qos=2, retain=True)
    writers[1].publish("kept/1", b"", qos=1, retain=True)
    wait_for("all is compared", lambda: compared(node)["alike"] == 20 + 900 + 4, 20)
    assert differences(node) == 0
    node.broker.kill()
    wait_for("the broker is away", lambda: not node.upstream()["up"], 20)
    assert not node.status()["ready"]
    node.broker.start()
    wait_for("the comparison has begun anew", lambda: compared(node)["begun"] == 2 and node.upstream()["up"], 30)
    # It had no persistence: its retained messages are gone, and so those of the node.
    before = compared(node)["alike"]
    direct(node, "again").publish("kept/9", b"new", qos=1, retain=True)
    wait_for("it is compared", lambda: compared(node)["alike"] == before + 2, 20)
    assert (differences(node), compared(node)["last"]) == (0, [])


def test_each_difference_is_told(beside: Callable[..., Sidecar], binary: Path, tmp_path: Path) -> None:
    """A broker that shows a message to one of the node's connections only: messages that the comparison misses on either side are in status, API, log and
    metrics, with topic and filter."""
    rules = tmp_path / "acl"
    rules.write_text("topic readwrite open/#\ntopic write only/#\npattern read only/%c\n")
    rules.chmod(0o644)
    node = beside(f"acl_file {rules}")
    node.broker.start()
    node.start()
    prefix = f"sedge-mirror-{node.status()['node']}-"
    writer = direct(node, "writer")
    before = compared(node)["begun"]
    # Deliveries in the first two seconds are not compared.
    wait_for("the comparison has settled", lambda: float(node.upstream()["since_seconds"]) >= 3, 20)
    writer.publish("open/x", b"seen by all", qos=1)
    writer.publish(f"only/{prefix}feed", b"heard", qos=1)
    writer.publish(f"only/{prefix}0", b"unheard", qos=1)
    wait_for("both are told", lambda: differences(node) == 2, 20)
    found = compared(node)
    assert {kind: metric(node.http, f"sedge_mirror_{kind}_total") for kind in KINDS} == found["differences"]
    assert (found["differences"]["extra"], found["differences"]["missing"], found["begun"]) == (1, 1, before)
    last = {line["kind"]: line for line in found["last"]}
    assert last["extra"]["topic"] == f"only/{prefix}feed" and last["missing"]["topic"] == f"only/{prefix}0"
    assert last["missing"]["filter"] == "#" and last["missing"]["detail"] == "broker: QoS 1, 7 bytes; node: nothing"
    assert node.log.read_text().count("would have delivered otherwise") == 2
    shown = subprocess.run([str(binary), "status", "--api", f"http://{HOST}:{node.http}"], capture_output=True, text=True, timeout=20, check=True).stdout
    assert "1 extra, 1 missing" in shown and "the node stands beside it" in shown, shown


def test_a_node_beside_a_broker_stands_alone(binary: Path, tmp_path: Path) -> None:
    """IL-25: settings that do not go with it are named."""
    for lines, said in (
        ('mirror_filters = ["a#"]', 'upstream.mirror_filters: "a#" is no topic filter'),
        ("mirror_filters = []", "upstream.mirror_filters: names nothing to compare"),
        ('[cluster]\nseeds = ["127.0.0.1"]', "cluster.seeds: a node beside a broker"),
    ):
        config = tmp_path / "wrong.toml"
        config.write_text(f'[upstream]\naddress = "127.0.0.1:1884"\nmode = "mirror"\n{lines}\n')
        done = subprocess.run([str(binary), "config", "check", "-c", str(config)], capture_output=True, text=True, timeout=30, check=False)
        assert done.returncode == 2 and said in done.stderr, done
