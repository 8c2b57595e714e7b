"""Settings, the level of the log and accounts in the dashboard and the API, by role."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from client import Client
from cluster import HOST, wait_for
from durable import Node
from mqttwire import V5
from test_dashboard import Browser, pytestmark
from test_roles import TOKENS, ask, files, keys

__all__ = ["pytestmark"]
SECRET = "a-cluster-key-nobody-is-shown"


@pytest.fixture
def guarded(binary: Path, tmp_path: Path) -> Iterator[Node]:
    """A node with accounts, and a token for each role."""
    passwords = tmp_path / "passwd"
    passwords.write_text("# staff\n")
    for flags in (["-b"], ["-b", "--scram"]):
        subprocess.run([str(binary), "passwd", *flags, str(passwords), "-".join(["anna", *flags[1:]]).replace("---", "-"), "geheim"], check=True, timeout=20)
    passwords.chmod(0o640)
    node = Node(binary, tmp_path / "guarded", "memory")
    node.extra = f'key = "{SECRET}"\n[auth]\npassword_file = "{passwords}"\n[log]\nlevel = "info"\n'
    node.environment = keys(files(tmp_path))
    node.start()
    yield node
    node.stop()


def enters(node: Node, user: str, password: str) -> bool:
    """Whether a client with this account may connect."""
    client = Client(HOST, node.port, V5, timeout=10)
    try:
        return bool(client.try_connect(f"of-{user}", username=user, password=password.encode()).reason == 0)
    finally:
        client.close()


def members(node: Node) -> int:
    """How many members a node knows and is in step with, itself included."""
    known = json.loads(ask(node, "get", "/api/v1/cluster", "view")[1])["members"]
    return sum(not one["link"] or one["link"]["synced"] for one in known)


def put(node: Node, user: str, body: object, role: str) -> tuple[int, Any]:
    """PUT /api/v1/accounts/USER."""
    head = {"Authorization": f"Bearer {TOKENS[role]}", "Content-Type": "application/json"}
    request = urllib.request.Request(f"http://{HOST}:{node.http}/api/v1/accounts/{user}", json.dumps(body).encode(), head, method="PUT")
    try:
        with urllib.request.urlopen(request, timeout=10) as answer:
            return answer.status, json.loads(answer.read())
    except urllib.error.HTTPError as refused:
        return refused.code, json.loads(refused.read())


def test_accounts_change_as_with_sedge_passwd(guarded: Node, tmp_path: Path) -> None:
    """OP-07: added, changed and removed; other lines, owner and mode of the file stay, and the kind of a hash; wrong input is refused."""
    passwords = tmp_path / "passwd"
    before = passwords.stat()
    told = json.loads(ask(guarded, "get", "/api/v1/accounts", "admin")[1])
    assert told == {"file": str(passwords), "accounts": [{"user": "anna", "scram": None}, {"user": "anna-scram", "scram": "sha-256"}]}
    assert not enters(guarded, "bob", "secret-1") and enters(guarded, "anna", "geheim")
    assert put(guarded, "bob", {"password": "secret-1"}, "admin")[0] == 200 and enters(guarded, "bob", "secret-1")
    assert put(guarded, "bob", {"password": "secret-2"}, "admin")[0] == 200 and enters(guarded, "bob", "secret-2")
    assert not enters(guarded, "bob", "secret-1")
    status, told = put(guarded, "anna-scram", {"password": "another"}, "admin")
    assert status == 200 and {"user": "anna-scram", "scram": "sha-256"} in told["accounts"] and enters(guarded, "anna-scram", "another")
    for user, body, what in (("a%3Ab", {"password": "x"}, "has no ':'"), ("bob", {"password": ""}, "empty"), ("bob", {}, "password")):
        status, told = put(guarded, user, body, "admin")
        assert status == 400 and what in told["detail"], told
    assert put(guarded, "eve", {"password": "x"}, "operate")[0] == 403
    assert ask(guarded, "delete", "/api/v1/accounts/nobody", "admin")[0] == 404
    assert ask(guarded, "delete", "/api/v1/accounts/bob", "admin")[0] == 200 and not enters(guarded, "bob", "secret-2")
    after = passwords.stat()
    assert (after.st_uid, after.st_gid, stat.S_IMODE(after.st_mode)) == (before.st_uid, before.st_gid, 0o640)
    text = passwords.read_text()
    assert text.startswith("# staff\nanna:$argon2id$") and [line.split(":")[0] for line in text.splitlines()[1:]] == ["anna", "anna-scram"]


def test_accounts_change_at_all_nodes(binary: Path, tmp_path: Path) -> None:
    """OP-07: one request changes the files of all nodes, each in its own kind of hash; the answer names the node that has no file; one node by name."""
    nodes = []
    for number, kind in enumerate((["-b"], ["-b", "--scram"], None)):
        node = Node(binary, tmp_path / f"all{number}", "memory")
        if kind is not None:
            subprocess.run([str(binary), "passwd", "-c", *kind, str(tmp_path / f"passwd{number}"), "anna", "geheim"], check=True, timeout=20)
            node.extra = f'[auth]\npassword_file = "{tmp_path / f"passwd{number}"}"\n'
        node.environment = keys(files(tmp_path)) | {"SEDGE_NODE__NAME": f"node-{number}"}
        nodes.append(node)
    try:
        for node in nodes:
            node.seeds = [f"{HOST}:{other.cluster}" for other in nodes if other is not node]
            node.start()
        wait_for("they know each other", lambda: all(members(node) == 3 for node in nodes), 30)
        status, told = put(nodes[0], "anna?node=*", {"password": "another"}, "admin")
        assert status == 200 and told["accounts"] == [{"user": "anna", "scram": None}], told
        assert [(one["node"], one["problem"] is None) for one in told["elsewhere"]] == [("node-1", True), ("node-2", False)], told
        assert "auth.password_file" in told["elsewhere"][1]["problem"]
        assert all(enters(node, "anna", "another") and not enters(node, "anna", "geheim") for node in nodes[:2])
        assert "SCRAM-SHA-256" in (tmp_path / "passwd1").read_text()
        assert put(nodes[0], "bob?node=node-1", {"password": "of one"}, "admin")[0] == 200
        assert enters(nodes[1], "bob", "of one") and not enters(nodes[0], "bob", "of one")
        status, told = put(nodes[0], "bob?node=node-2", {"password": "x"}, "admin")
        assert status == 409 and "auth.password_file" in told["detail"], told
        assert put(nodes[0], "bob?node=nobody", {"password": "x"}, "admin")[0] == 404
        assert ask(nodes[0], "delete", "/api/v1/accounts/nobody?node=node-1", "admin")[0] == 404
        assert ask(nodes[1], "delete", "/api/v1/accounts/anna?node=*", "admin")[0] == 200
        assert not any(enters(node, "anna", "another") for node in nodes[:2])
    finally:
        for node in nodes:
            node.stop()


def test_without_a_token_nobody_changes_accounts(binary: Path, tmp_path: Path) -> None:
    """SEC: a node whose API is open to programs of its machine lets none of them make an account."""
    passwords = tmp_path / "passwd"
    passwords.write_text("")
    node = Node(binary, tmp_path / "open", "memory")
    node.extra = f'[auth]\npassword_file = "{passwords}"\n'
    node.start()
    try:
        status, body = ask(node, "delete", "/api/v1/accounts/anna")
        assert (status, json.loads(body)["error"]) == (403, "token_only")
    finally:
        node.stop()


def test_settings_are_those_of_config_show(guarded: Node, binary: Path) -> None:
    """OP-07: key by key, without secrets, and what has changed since the start."""
    told = ask(guarded, "get", "/api/v1/settings", "view")[1]
    assert SECRET.encode() not in told
    settings = {one["key"]: one for one in json.loads(told)["settings"]}
    config = guarded.data.parent / f"{guarded.data.name}.toml"
    shown = subprocess.run([str(binary), "config", "show", "-c", str(config), "--json"], env=os.environ | guarded.environment, capture_output=True, text=True, check=True, timeout=20)
    for one in json.loads(shown.stdout):
        assert settings[one["key"]]["from"] == one["from"], one
        if isinstance(one["value"], int | bool):
            assert settings[one["key"]]["value"] == json.dumps(one["value"])
    assert settings["cluster.key"]["value"] is None and settings["cluster.key"]["words"] == "(secret)"
    assert all(one["waits_for"] is None for one in settings.values())
    guarded.extra += "lines_per_second = 77\n"
    guarded.configure()
    settings = {one["key"]: one for one in json.loads(ask(guarded, "get", "/api/v1/settings", "view")[1])["settings"]}
    assert (settings["log.lines_per_second"]["value"], settings["log.lines_per_second"]["waits_for"]) == ("77", "restart")


def test_the_page_changes_what_the_role_may(guarded: Node, tmp_path: Path) -> None:
    """OP-07: settings for all, the log's level for operators, reload and accounts for administrators, by keyboard and on a phone; no violation of axe."""
    browser = Browser("settings", f"http://{HOST}:{guarded.http}", ws=0, tokens=TOKENS, file=str(tmp_path / "passwd"), secret=SECRET)
    browser.until("level")
    assert json.loads(ask(guarded, "get", "/api/v1/log", "view")[1])["nodes"][0]["level"] == "debug"
    browser.go_on()
    browser.until("added")
    assert wait_for("carol may connect", lambda: enters(guarded, "carol", "her password"))
    browser.go_on()
    browser.until("removed")
    assert not enters(guarded, "carol", "her password")
    browser.go_on()
    browser.finish()
