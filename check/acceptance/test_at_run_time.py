"""Settings that operators change, and output that they look at, while a node runs: `sedge reload`, `sedge log-level`, `sedge logs`, `--watch`."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import select
import signal
import struct
import subprocess
import termios
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from client import Client
from cluster import HOST, Cluster, wait_for
from durable import Node
from mqttwire import V5

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
    """The log levels of the nodes, as `sedge log-level` says."""
    command = [str(node.binary), "log-level", *words, "--json", "--api", f"http://{HOST}:{node.http}"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=True)
    return [one["level"] for one in json.loads(done.stdout)["nodes"]]


@pytest.mark.parametrize("form", ["text", "json"])
def test_the_level_of_the_log_changes_while_the_node_runs(binary: Path, tmp_path: Path, form: str) -> None:
    """OP-09: by the command, and by SIGHUP, which brings back the value of the configuration."""
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
            assert lines and all(line["node_name"] and line["cluster_name"] == os.environ["SEDGE_CLUSTER__NAME"] for line in lines), lines
    finally:
        node.stop()


def test_one_command_changes_the_log_of_all_nodes_or_of_one(make_cluster: Callable[..., Cluster]) -> None:
    """OP-09: from any node."""
    cluster = make_cluster(3)
    name = cluster.status(1)["name"]
    assert levels(cluster, "--node", name, "trace") == ["trace"]
    assert sorted(levels(cluster)) == ["info", "info", "trace"]
    assert levels(cluster, "warn,sedge_daemon=info") == ["warn,sedge_daemon=info"] * 3


def screens(binary: Path, *words: str, until: Callable[[bytes], bool]) -> bytes:
    """The output of a command on a terminal of 8 rows, until enough is there; then Ctrl-C."""
    leader, follower = pty.openpty()
    fcntl.ioctl(follower, termios.TIOCSWINSZ, struct.pack("HHHH", 8, 60, 0, 0))
    process = subprocess.Popen([str(binary), *words], stdin=subprocess.DEVNULL, stdout=follower, stderr=subprocess.PIPE)
    os.close(follower)
    shown = b""
    try:
        deadline = time.monotonic() + 30
        while not until(shown):
            assert time.monotonic() < deadline and process.poll() is None, shown
            if select.select([leader], [], [], 0.5)[0]:
                shown += os.read(leader, 65_536)
        process.send_signal(signal.SIGINT)
        assert process.wait(10) == 0
    finally:
        process.kill()
        os.close(leader)
    return shown


def test_a_listing_is_drawn_again_and_again(make_node: Callable[..., Node]) -> None:
    """OP-09: on a terminal in place of the one before, within its rows, and nobody's client id draws on it."""
    node = make_node("memory")
    api = ("--api", f"http://{HOST}:{node.http}")
    clients = [node.client(f"evil\x1b[2J{number}", clean=True) for number in range(9)]
    shown = screens(node.binary, "sessions", "--watch", "1", *api, until=lambda text: text.count(b"\x1b[J") >= 2)
    first = shown.split(b"\x1b[J")[0]
    assert first.startswith(b"\x1b[H") and b"every 1 s" in first and b"evil\\x1b[2J0" in first
    assert first.count(b"\n") == 7 and b"more lines" in first and b"\x1b[2J" not in shown, shown
    for client in clients:
        client.drop()
    for words, mark in ((("sessions", "--watch=1"), "CLIENT"), (("retained", "--watch", "1", "--json"), '"messages"')):
        with subprocess.Popen([str(node.binary), *words, *api], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as watching:
            assert watching.stdout and watching.stderr
            seen = 0
            while seen < 2:
                line = watching.stdout.readline()
                assert line, watching.stderr.read()
                seen += mark in line
                assert "\x1b" not in line
            if "--json" in words:
                node.kill()
                assert "cannot reach" in watching.stderr.readline(), "it goes on until the node is there again"
                node.start()
                assert mark in watching.stdout.readline()
            watching.terminate()
            assert watching.wait(10) == 0
    for command in ("status", "topology", "routes", "neighbours", "bridges", "rules", "scale status"):
        assert "--watch" in sedge(node, *command.split(), "--help").stdout, command
    wrong = sedge(node, "sessions", "--watch", "0")
    assert wrong.returncode == 2 and "1..=3600" in wrong.stderr


def test_the_last_lines_of_all_logs_in_order_and_followed(make_cluster: Callable[..., Cluster]) -> None:
    """OP-09: any node tells those of all; a node that starts anew is followed from its first line on."""
    cluster = make_cluster(3)
    names = [cluster.status(node)["name"] for node in range(3)]
    api = ("--api", f"http://{HOST}:{cluster.http}")

    def logs(*words: str) -> list[str]:
        done = subprocess.run([str(cluster.binary), "logs", *words, *api], capture_output=True, text=True, timeout=30, check=True)
        return done.stdout.splitlines()

    lines = [json.loads(line) for line in logs("--json")]
    assert {line["name"] for line in lines} == set(names)
    assert [line["at_ms"] for line in lines] == sorted(line["at_ms"] for line in lines)
    of_one = logs("--node", names[1], "-n", "1000")
    assert any("listening" in line for line in of_one) and logs("--node", names[1], "-n", "1") == of_one[-1:]
    assert len(logs("-n", "2")) == 6 and logs("-n", "0") == []
    follow = subprocess.Popen([str(cluster.binary), "logs", "-f", "-n", "1", *api], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    timer = threading.Timer(60, follow.kill)
    timer.start()
    try:
        assert follow.stdout
        begun = {follow.stdout.readline().split("  ")[0] for _ in names}
        assert begun == set(names), "from here on it follows"
        for node in range(3):
            client = Client(HOST, cluster.ports()[node], V5, timeout=10)
            client.connect(f"evil\x1b[2J{node}", clean=True)
            while True:
                line = follow.stdout.readline()
                assert line and "\x1b" not in line, line
                if line.startswith(f"{names[node]}  ") and f"evil\\x1b[2J{node}" in line:
                    break
            client.drop()
        follow.terminate()
        assert follow.wait(10) == 0
    finally:
        timer.cancel()
        follow.kill()
    assert cluster.metric(0, "sedge_log_lines_kept") > 3
    wrong = subprocess.run([str(cluster.binary), "logs", "--node", "nobody", *api], capture_output=True, text=True, timeout=30, check=False)
    assert wrong.returncode == 1 and "nobody" in wrong.stderr


def test_a_followed_node_that_starts_anew_is_followed_on(make_node: Callable[..., Node]) -> None:
    """OP-09: its new life counts its lines anew."""
    node = make_node("memory")
    command = [str(node.binary), "logs", "--follow", "--json", "--api", f"http://{HOST}:{node.http}"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as follow:
        assert follow.stdout and follow.stderr
        timer = threading.Timer(60, follow.kill)
        timer.start()
        assert json.loads(follow.stdout.readline())["number"] == 0
        node.kill()
        assert "cannot reach" in follow.stderr.readline()
        node.start()
        while json.loads(follow.stdout.readline())["number"] != 0:
            pass
        follow.terminate()
        assert follow.wait(10) == 0
        timer.cancel()
