"""What operators change and look at while a node runs: `sedge reload`."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

from cluster import HOST
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
