"""What operators change and look at while a node runs: `sedge reload` and `sedge log-level`."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from cluster import HOST, Cluster, wait_for
from durable import Node

RULE = '[rule.hot]\nfrom = ["in/#"]\nto = "out/{1}"\n'


def sedge(node: Node, *words: str) -> subprocess.CompletedProcess[str]:
    """Runs a command that asks this node."""
    command = [str(node.binary), *words, "--api", f"http://{HOST}:{node.http}"]
    return subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)


def rows(text: str) -> dict[str, str]:
    """A table of two columns."""
    return {first: rest for first, rest in (line.split("  ", 1) for line in text.splitlines()[1:])}


def test_a_reload_says_what_counts_at_once_and_what_needs_a_restart(make_node: Callable[..., Node]) -> None:
    """OP-09: each changed key is named once, and one that waits for a restart as often as somebody asks."""
    node = make_node("memory")
    assert json.loads(sedge(node, "reload", "--json").stdout) | {"reloaded": []} == {"reloaded": [], "applied": [], "restart": []}
    node.extra, node.settings["shards"] = RULE, 1
    config = node.configure()
    done = sedge(node, "reload")
    told = {key.strip(): result.strip() for key, result in rows(done.stdout).items()}
    assert done.returncode == 0, done.stderr
    assert told["rule.hot"] == "changed, counts at once" and told["node.shards"] == "changed, needs a restart of the node", done.stdout
    assert told["access"] == told["bridges and rules"] == "read again"
    again = json.loads(sedge(node, "reload", "--json").stdout)
    assert (again["applied"], again["restart"]) == ([], ["node.shards"])
    assert "node.shards" in node.log.read_text()
    node.extra = RULE.replace("from", "form")
    node.configure()
    failed = sedge(node, "reload")
    assert failed.returncode == 1 and f"{config}:" in failed.stdout and "form" in failed.stdout, failed.stdout
    as_json = sedge(node, "reload", "--json")
    assert as_json.returncode == 1 and json.loads(as_json.stdout)["restart"] == [] and not as_json.stderr


def test_nobody_to_reload_is_said_with_the_address(binary: Path) -> None:
    """The command fails with the address and the flag that names another."""
    done = subprocess.run([str(binary), "reload", "--api", f"http://{HOST}:1"], capture_output=True, text=True, timeout=30, check=False)
    assert done.returncode == 1 and f"http://{HOST}:1" in done.stderr and "--api" in done.stderr


def levels(node: Node | Cluster, *words: str) -> list[str]:
    """What nodes write, as `sedge log-level` says."""
    command = [str(node.binary), "log-level", *words, "--json", "--api", f"http://{HOST}:{node.http}"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=True)
    return [one["level"] for one in json.loads(done.stdout)["nodes"]]


@pytest.mark.parametrize("form", ["text", "json"])
def test_the_level_of_the_log_changes_while_the_node_runs(binary: Path, tmp_path: Path, form: str) -> None:
    """OP-09: by the command, and by SIGHUP, which brings back what the configuration says."""
    node = Node(binary, tmp_path / "node", "memory")
    # Lines of clients beyond the limit are of level debug.
    log = f'[log]\nformat = "{form}"\nlines_per_second = 0\n'
    node.extra = log
    node.start()

    def debug_lines() -> int:
        return sum("DEBUG" in line for line in node.log.read_text().splitlines())

    def visit(name: str) -> None:
        client = node.client(name, clean=True)
        client.subscribe("a")
        client.drop()

    try:
        visit("a")
        assert (debug_lines(), levels(node)) == (0, ["info"])
        assert levels(node, "debug") == ["debug"]
        visit("b")
        wait_for("the log has lines of level debug", lambda: debug_lines() > 0)
        table = sedge(node, "log-level").stdout.splitlines()
        assert table[0].split() == ["NODE", "LEVEL", "CONFIGURED"] and table[1].split()[1:] == ["debug", "info"]
        wrong = sedge(node, "log-level", "loud")
        assert wrong.returncode == 1 and "loud" in wrong.stderr and "debug" in wrong.stderr
        node.extra = f'{log}level = "error"\n'
        node.reload()
        wait_for("the level of the configuration holds", lambda: levels(node) == ["error"])
        before = debug_lines()
        visit("c")
        assert levels(node, "info") == ["info"]
        assert json.loads(sedge(node, "reload", "--json").stdout)["applied"] == [], "it was applied with the signal"
        assert (levels(node), debug_lines()) == (["error"], before)
        if form == "json":
            told = [json.loads(line) for line in node.log.read_text().splitlines() if line.startswith('{"')]
            lines = [line for line in told if "timestamp" in line]
            assert lines and all(line["node_name"] and line["cluster_name"] == "sedge" for line in lines), lines
    finally:
        node.stop()


def test_one_command_changes_the_log_of_all_nodes_or_of_one(make_cluster: Callable[..., Cluster]) -> None:
    """OP-09: from any node."""
    cluster = make_cluster(3)
    name = cluster.status(1)["name"]
    assert levels(cluster, "--node", name, "trace") == ["trace"]
    assert sorted(levels(cluster)) == ["info", "info", "trace"]
    assert levels(cluster, "warn,sedge_daemon=info") == ["warn,sedge_daemon=info"] * 3
