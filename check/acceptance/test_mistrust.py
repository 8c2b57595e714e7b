"""Two nodes that somebody wants to be one cluster, and that cannot be: both say why, and what to do."""

from __future__ import annotations

import shutil
import socket
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from cluster import HOST, metric, wait_for
from durable import Node

KEY, OTHER = "0123456789abcdef-one", "0123456789abcdef-two"


@pytest.fixture
def pair(binary: Path, tmp_path: Path) -> Iterator[Callable[[str, str], tuple[Node, Node]]]:
    """A node, and one whose seed it is, with these lines for [cluster]."""
    made: list[Node] = []

    def make(first: str, second: str) -> tuple[Node, Node]:
        for number, extra in enumerate((first, second)):
            node = Node(binary, tmp_path / f"node{number}", "memory")
            node.extra = extra
            made.append(node)
        made[1].seeds = [f"{HOST}:{made[0].cluster}"]
        for node in made:
            node.start()
        return made[0], made[1]

    yield make
    for node in made:
        node.stop()


def names(node: Node, words: str, other: Node) -> bool:
    """Whether log and status say so of the other."""
    said = [str(line) for line in node.status()["refused_nodes"]]  # type: ignore[attr-defined]
    address = f"{HOST}:{other.cluster}"
    return words in node.log.read_text() and any(words in line and address in line for line in said)


def key(text: str) -> str:
    """Lines for [cluster]."""
    return f'key = "{text}"\n' if text else ""


@pytest.mark.parametrize(("first", "second", "says_first", "says_second"), [
    (KEY, OTHER, "has another cluster.key", "has another cluster.key"),
    (KEY, "", "has no cluster.key, and this node has one", "has a cluster.key, and this node has none"),
    ("", KEY, "has a cluster.key, and this node has none", "has no cluster.key, and this node has one"),
])
def test_keys_that_differ_are_named_by_both(
    pair: Callable[[str, str], tuple[Node, Node]], first: str, second: str, says_first: str, says_second: str,
) -> None:
    """FT-21: within ten seconds, in log, status and metric of both, whoever of them is the seed."""
    one, two = pair(key(first), key(second))
    wait_for("both say so", lambda: names(one, says_first, two) and names(two, says_second, one), 10)
    for node in (one, two):
        assert metric(node.http, "sedge_links_auth_failures_total") > 0
        assert "set the same on all nodes" in node.log.read_text()
        assert "does not answer" not in node.log.read_text()


def test_a_copied_data_directory_is_named_by_both(binary: Path, tmp_path: Path) -> None:
    """FT-21: two processes with one node id, one of which knows the other, or both a third one."""
    one, two, third = (Node(binary, tmp_path / f"node{number}", "memory") for number in range(3))
    try:
        one.start()
        one.stop()
        shutil.copytree(one.data, two.data)
        third.start()
        one.seeds = two.seeds = [f"{HOST}:{third.cluster}"]
        one.start()
        wait_for("one is a member", lambda: one.is_linked(1), 10)
        two.start()
        words = "has the node id of this node"
        wait_for("both say so", lambda: names(one, words, two) and names(two, words, one), 10)
        for node in (one, two):
            assert metric(node.http, "sedge_node_id_conflicts_total") > 0
            assert "empty its node.data_dir" in node.log.read_text()
    finally:
        for node in (one, two, third):
            node.stop()




def test_two_machines_without_a_key_are_told_so(binary: Path, tmp_path: Path) -> None:
    """FT-21: `config check` and `serve` refuse such a seed; what asks all the same is named."""
    config = tmp_path / "sedge.toml"
    config.write_text('[cluster]\nseeds = ["10.0.0.7"]\n')
    for command in ("config", "check"), ("serve",):
        done = subprocess.run([str(binary), *command, "-c", str(config)], capture_output=True, text=True, timeout=20)
        assert done.returncode == 2 and "cluster.seeds" in done.stderr and "cluster.key_file" in done.stderr, done.stderr
    config.write_text(f'[cluster]\nseeds = ["10.0.0.7"]\nkey = "{KEY}"\n')
    assert subprocess.run([str(binary), "config", "check", "-c", str(config)], timeout=20).returncode == 0


def test_a_refusal_that_nobody_asked_for_says_nothing(pair: Callable[[str, str], tuple[Node, Node]]) -> None:
    """FT-21: anybody can send one; noise is no reason for a word either."""
    one, two = pair(key(KEY), key(KEY))
    wait_for("they are linked", lambda: one.is_linked(1) and two.is_linked(1), 10)
    before = metric(one.http, "sedge_datagrams_refused_total")
    with socket.socket(type=socket.SOCK_DGRAM) as stranger:
        stranger.bind((HOST, 0))
        for payload in (b"sedge refusal 1\0\x01", b"sedge refusal 1\0", b"\x5e\x01" + bytes(80), b""):
            stranger.sendto(payload, (HOST, one.cluster))
    wait_for("they have come", lambda: metric(one.http, "sedge_datagrams_refused_total") >= before + 4)
    assert one.status()["refused_nodes"] == []
    assert metric(one.http, "sedge_links_auth_failures_total") == 0
