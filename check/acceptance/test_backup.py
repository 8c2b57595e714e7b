"""`sedge backup` of nodes that run, and `sedge restore` on machines that have lost everything."""

from __future__ import annotations

import io
import json
import shutil
import subprocess
import tarfile
import threading
from collections.abc import Callable
from pathlib import Path

from cluster import HOST, wait_for
from durable import Node, knows_all

PASSWORD = {"username": "anna", "password": b"her secret"}


def run(binary: Path, *arguments: str, standard_input: bytes | None = None) -> subprocess.CompletedProcess[bytes]:
    """Runs a command to its end."""
    return subprocess.run([str(binary), *arguments], capture_output=True, input=standard_input, timeout=60, check=False)


def config_of(node: Node) -> str:
    """The node's configuration file."""
    return str(node.data.parent / f"{node.data.name}.toml")


def test_a_cluster_that_is_saved_while_it_runs_comes_back_after_all_disks_are_lost(binary: Path, tmp_path: Path) -> None:
    """Retained messages, sessions with their waiting messages, and accounts; a publisher goes on during it, and messages acknowledged before it are there."""
    nodes = [Node(binary, tmp_path / f"node-{number}", "journal") for number in range(3)]
    accounts = tmp_path / "passwords"
    made = run(binary, "passwd", "-c", str(accounts), "anna", standard_input=b"her secret\n")
    assert made.returncode == 0, made.stderr
    for node in nodes:
        node.extra = f'[auth]\npassword_file = "{accounts}"\n'
        node.seeds = [f"{HOST}:{other.cluster}" for other in nodes if other is not node]
    try:
        for node in nodes:
            node.spawn()
        for node in nodes:
            wait_for("the node is ready", node._ready, 30)
        wait_for("all know each other", lambda: all(knows_all(node) for node in nodes), 30)
        for number, node in enumerate(nodes):
            client = node.client(f"sleeper-{number}", **PASSWORD)
            client.subscribe(f"to/{number}", qos=1)
            client.disconnect()
        sender = nodes[0].client("sender", **PASSWORD)
        for number in range(3):
            sender.publish(f"to/{number}", f"for {number}", qos=1)
            sender.publish(f"kept/{number}", f"value {number}", qos=1, retain=True)
        stop = threading.Event()

        def keep_on() -> None:
            noise = nodes[1].client("noise", **PASSWORD)
            count = 0
            while not stop.is_set():
                noise.publish("noise", str(count), qos=1, retain=True)
                count += 1

        load = threading.Thread(target=keep_on)
        load.start()
        try:
            for number, node in enumerate(nodes):
                done = run(binary, "backup", "-c", config_of(node), str(tmp_path / f"{number}.tar"), "--json")
                assert done.returncode == 0, done.stderr
                assert json.loads(done.stdout)["files"] > 4
        finally:
            stop.set()
            load.join(30)
        in_use = run(binary, "restore", "-c", config_of(nodes[0]), str(tmp_path / "0.tar"), "--force")
        assert in_use.returncode == 1 and b"in use" in in_use.stderr
    finally:
        for node in nodes:
            if node.process and node.process.poll() is None:
                node.kill()
    accounts.unlink()
    try:
        for number, node in enumerate(nodes):
            shutil.rmtree(node.data)
            put = run(binary, "restore", "-c", config_of(node), str(tmp_path / f"{number}.tar"))
            assert put.returncode == 0, put.stderr
            assert f"restored {accounts}".encode() in put.stdout
        again = run(binary, "restore", "-c", config_of(nodes[0]), str(tmp_path / "0.tar"))
        assert again.returncode == 1 and b"--force" in again.stderr
        for node in nodes:
            node.spawn()
        for node in nodes:
            wait_for("the node is ready", node._ready, 30)
        wait_for("all know each other", lambda: all(knows_all(node) for node in nodes), 30)
        for number in range(3):
            client = nodes[(number + 1) % 3].client(f"sleeper-{number}", **PASSWORD)
            assert client.connack.session_present
            assert client.message().payload == f"for {number}".encode()
        reader = nodes[2].client("reader", clean=True, **PASSWORD)
        reader.subscribe("kept/#", qos=1)
        assert {reader.message().payload for _ in range(3)} == {b"value 0", b"value 1", b"value 2"}
    finally:
        for node in nodes:
            node.stop()


def test_mistakes_are_named_and_change_nothing(binary: Path, tmp_path: Path, make_node: Callable[..., Node]) -> None:
    """No data directory, a node in memory, an archive with a flipped bit, one of something else; a journal that is there is kept aside."""
    node = make_node("journal")
    client = node.client("me")
    client.subscribe("a", qos=1)
    client.disconnect()
    nothing = run(binary, "backup", str(tmp_path / "x.tar"))
    assert nothing.returncode == 2 and b"node.data_dir" in nothing.stderr
    piped = run(binary, "backup", "-c", config_of(node), "-")
    assert piped.returncode == 0
    names = tarfile.open(fileobj=io.BytesIO(piped.stdout)).getnames()
    assert "data/node-id" in names and names[-1] == "sedge-backup.json" and "data/lock" not in names
    node.stop()
    before = sorted(path for path in node.data.rglob("*") if path.is_file())
    flipped = bytearray(piped.stdout)
    flipped[512] ^= 1
    for content, words in ((bytes(flipped), b"damaged"), (b"x" * 4096, b"nothing was changed")):
        refused = run(binary, "restore", "-c", config_of(node), "-", "--force", standard_input=content)
        assert refused.returncode == 1 and words in refused.stderr
        assert sorted(path for path in node.data.rglob("*") if path.is_file()) == before
    done = run(binary, "restore", "-c", config_of(node), "-", "--force", "--json", standard_input=piped.stdout)
    assert done.returncode == 0, done.stderr
    assert str(node.data / "journal") in json.loads(done.stdout)["restored"]
    assert (node.data / "journal.replaced/current").exists()
    node.start()
    assert node.client("me").connack.session_present
    memory = make_node("memory", tmp_path / "forgetful")
    empty = run(binary, "backup", "-c", config_of(memory), str(tmp_path / "y.tar"))
    assert empty.returncode == 1 and b"memory" in empty.stderr and not (tmp_path / "y.tar").exists()
