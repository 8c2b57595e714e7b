"""Every limit is written down where operators look for it, with a metric that the node has."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

from cluster import HOST, get, wait_for
from durable import Node

DOCS = Path(__file__).parents[2] / "docs"
LIMIT = re.compile(r"^\| `([a-zA-Z_.]+\.(?:max_\w+|maximum_\w+|lines_per_second))` \|", re.MULTILINE)
METRIC = re.compile(r"`([a-z_]+)(?:\{[^`]*\})?`")


def rows() -> list[str]:
    """The lines of the table of limits."""
    section = (DOCS / "operations.md").read_text().partition("\n## Limits\n")[2].partition("\n## ")[0]
    return [line for line in section.splitlines() if line.startswith("| ") and not line.startswith("| Limit |")]


def test_every_limit_has_a_row_and_every_metric_of_a_row_is_there(make_node: Callable[..., Node]) -> None:
    """SEC: the keys of docs/configuration.md that limit something, against the table in docs/operations.md, against what a node tells."""
    keys = LIMIT.findall((DOCS / "configuration.md").read_text())
    assert len(keys) > 40, keys
    table = rows()
    limits = "\n".join(row.split("|")[1] for row in table)
    # A listener's own is that of the node for its clients.
    missing = [key for key in keys if f"`{key}`" not in limits and f"`{key.replace('listener.NAME.', 'limits.')}`" not in limits]
    assert missing == [], "docs/operations.md says nothing of them"
    named = {metric for row in table for metric in METRIC.findall(row.split("|")[4])}
    assert len(named) > 50, named
    node = make_node("journal")
    # Metrics of rules are there with the first rule.
    node.extra = '[rule.values]\nfrom = ["spBv1.0/#"]\ndecode = "sparkplug"\nto = "values"\n'
    node.reload()

    def told() -> set[str]:
        return set(re.findall(r"^# TYPE sedge_(\w+) ", get(f"http://{HOST}:{node.http}/metrics"), re.MULTILINE))

    wait_for("the node has the rule", lambda: "rule_running" in told(), 20)
    assert named - told() == set(), "the node does not tell them"
