"""Roles of the HTTP API: every endpoint with every role, by the command line, and in the dashboard."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from client import Client
from cluster import HOST, get, wait_for
from durable import Node
from mqttwire import V5
from test_dashboard import CHROMIUM, Browser

pytestmark = pytest.mark.usefixtures("quiet_network")
TOKENS = {"view": "view-0123456789-abcdef", "operate": "operate-0123456789-abcdef", "admin": "admin-0123456789-abcdef"}
ORDER = list(TOKENS)
# Requests that change something; all other requests are for every role that may look.
OPERATE = {
    ("post", "/api/v1/drain"), ("delete", "/api/v1/drain"), ("delete", "/api/v1/sessions/{client}/connection"), ("put", "/api/v1/log"),
    ("post", "/api/v1/traces"), ("delete", "/api/v1/traces/{id}"), ("put", "/api/v1/scale"), ("post", "/api/v1/scale/{order}"),
}
ADMIN = {
    ("delete", "/api/v1/sessions/{client}"), ("delete", "/api/v1/retained/{topic}"), ("post", "/api/v1/neighbours"), ("put", "/api/v1/neighbours"),
    ("delete", "/api/v1/neighbours"), ("post", "/api/v1/reload"), ("get", "/api/v1/accounts"), ("put", "/api/v1/accounts/{user}"), ("delete", "/api/v1/accounts/{user}"),
}


def files(folder: Path) -> dict[str, Path]:
    """A file with the token of each role."""
    found = {role: folder / f"{role}-token" for role in TOKENS}
    for role, file in found.items():
        file.write_text(f"{TOKENS[role]}\n")
        file.chmod(0o600)
    return found


def keys(found: dict[str, Path]) -> dict[str, str]:
    """The settings that name them."""
    return {"SEDGE_HTTP__TOKEN_FILE": str(found["admin"]), "SEDGE_HTTP__OPERATE_TOKEN_FILE": str(found["operate"]), "SEDGE_HTTP__VIEW_TOKEN_FILE": str(found["view"])}


@pytest.fixture
def guarded(binary: Path, tmp_path: Path) -> Iterator[Node]:
    """A node with three tokens."""
    node = Node(binary, tmp_path / "guarded", "memory")
    node.environment = keys(files(tmp_path))
    node.start()
    yield node
    node.stop()


def ask(node: Node, method: str, path: str, role: str | None = None, token: str | None = None) -> tuple[int, Any]:
    """Status and answer of a request."""
    token = token or (TOKENS[role] if role else None)
    head = {"X-Sedge": "1", **({"Authorization": f"Bearer {token}"} if token else {})}
    request = urllib.request.Request(f"http://{HOST}:{node.http}{path}", headers=head, method=method.upper())
    try:
        with urllib.request.urlopen(request, timeout=10) as answer:
            # A stream of events has no end.
            return answer.status, None if path.endswith("/events") else answer.read()
    except urllib.error.HTTPError as refused:
        return refused.code, refused.read()


def test_every_endpoint_has_a_role(guarded: Node) -> None:
    """OP-07: the whole route table with no token, a wrong one, and that of each role; the description names the same roles."""
    described = json.loads(ask(guarded, "get", "/api/v1/openapi.json", "view")[1])["paths"]
    table = {(method, path): operation["x-role"] for path, item in described.items() for method, operation in item.items()}
    assert len(table) > 35
    # Emptying the node comes last: while it is emptied it still answers.
    for (method, path), role in sorted(table.items(), key=lambda entry: ("drain" in entry[0][1], entry[0][0] == "delete")):
        assert role == ("operate" if (method, path) in OPERATE else "admin" if (method, path) in ADMIN else "view"), (method, path)
        real = path.replace("{id}", "1").replace("{order}", "resume").replace("{client}", "nobody").replace("{user}", "nobody").replace("{topic}", "nothing")
        if not path.startswith("/health/") and path != "/metrics":
            assert ask(guarded, method, real)[0] == 401, (method, path)
            assert ask(guarded, method, real, token="another-0123456789")[0] == 401, (method, path)
        for shown in ORDER:
            status, body = ask(guarded, method, real, shown)
            if ORDER.index(shown) >= ORDER.index(role):
                assert status not in (401, 403), (method, path, shown, body)
            else:
                told = json.loads(body)
                assert (status, told["error"]) == (403, "role") and f"takes the role {role}" in told["detail"], (method, path, shown, body)
    assert OPERATE | ADMIN <= set(table)
    for role in ORDER:
        assert json.loads(ask(guarded, "get", "/api/v1/role", role)[1]) == {"role": role, "asks": False}


def test_the_command_line_says_which_role_it_takes(guarded: Node, binary: Path, tmp_path: Path) -> None:
    """OP-07: `sedge` with each token; and a token that is taken out of its file opens nothing after a reload."""
    api = ["--api", f"http://{HOST}:{guarded.http}"]

    def run(role: str, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([str(binary), *words, *api, "--token-file", str(tmp_path / f"{role}-token")], capture_output=True, text=True, timeout=20, check=False)

    assert run("view", "status").returncode == 0
    refused = run("view", "drain")
    assert refused.returncode == 1 and "takes the role operate" in refused.stderr and "http.operate_token_file" in refused.stderr, refused
    assert run("operate", "log-level", "debug").returncode == 0
    assert "takes the role admin" in run("operate", "reload").stderr
    assert run("admin", "reload").returncode == 0
    (tmp_path / "view-token").write_text("# nobody yet\nview-of-somebody-else\n")
    assert run("admin", "reload").returncode == 0
    assert ask(guarded, "get", "/api/v1/status", "view")[0] == 401
    assert ask(guarded, "get", "/api/v1/status", token="view-of-somebody-else")[0] == 200
    # A file that cannot be used changes nothing.
    (tmp_path / "view-token").chmod(0o644)
    assert "everybody on this machine may read" in run("admin", "reload").stdout + run("admin", "reload").stderr
    assert ask(guarded, "get", "/api/v1/status", token="view-of-somebody-else")[0] == 200


def test_a_configuration_that_opens_the_node_is_refused(binary: Path, tmp_path: Path) -> None:
    """SEC: tokens of a role without one for everything, a file for everybody, and the same token twice."""
    found = files(tmp_path)

    def check(**changed: str) -> str:
        named = {key: value for key, value in (keys(found) | changed).items() if value}
        done = subprocess.run([str(binary), "config", "check"], env=os.environ | named, capture_output=True, text=True, timeout=20, check=False)
        assert done.returncode != 0
        return done.stdout + done.stderr

    assert "needs http.token_file" in check(SEDGE_HTTP__TOKEN_FILE="")
    assert "is in http.operate_token_file, too" in check(SEDGE_HTTP__VIEW_TOKEN_FILE=str(found["operate"]))
    found["view"].chmod(0o604)
    assert "chmod o=" in check()


@pytest.mark.skipif(not CHROMIUM, reason="chromium is not installed; ./test installs it")
def test_the_page_offers_what_the_role_may_do(guarded: Node) -> None:
    """OP-07: buttons of clients, retained messages, the overview and traces with each role; no violation of axe."""
    with contextlib.closing(Client(HOST, guarded.port, V5, timeout=10)) as lamp:
        lamp.connect("lamp", props={"session_expiry_interval": 60}, clean=False)
        lamp.subscribe("hall/#", qos=1)
        lamp.publish("hall/lamp", "on", qos=1, retain=True)
        wait_for("it is there", lambda: json.loads(ask(guarded, "get", "/api/v1/retained", "view")[1])["total"] == 1)
        Browser("roles", f"http://{HOST}:{guarded.http}", ws=0, tokens=TOKENS, client="lamp", topic="hall/lamp").finish()
    assert get(f"http://{HOST}:{guarded.http}/health/live")
