"""Rights to change something through the HTTP API, and how a wanted end is told from a crash."""

from __future__ import annotations

import subprocess
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path

from client import Client
from cluster import HOST, Cluster, get, wait_for
from mqttwire import V5

TOP = Path(__file__).parents[2]
DRAIN = "/api/v1/drain?stop=true"


def asked(port: int, method: str, path: str, **headers: str) -> int:
    """The status of the answer."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    request = urllib.request.Request(f"http://{HOST}:{port}{path}", method=method, headers=named)
    try:
        with urllib.request.urlopen(request, timeout=10) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code


def test_only_the_token_of_up_changes_something(make_cluster: Callable[..., Cluster]) -> None:
    """SEC: programs of this machine may read; requests that change something show the token that `sedge up` has made; foreign pages get nothing."""
    cluster = make_cluster(2)
    note = cluster.data / "api-token"
    assert note.stat().st_mode & 0o777 == 0o600
    assert f"http://{HOST}:{cluster.http}/#token={cluster.token()} " in cluster.output()
    for port in (cluster.http, cluster.http + 1):
        assert asked(port, "GET", "/api/v1/sessions") == 200
        assert asked(port, "GET", "/api/v1/sessions", Authorization="Bearer 0123456789abcdef") == 401
        assert asked(port, "GET", "/api/v1/sessions", Host="evil.example") == 403
        for foreign in ({"Sec_Fetch_Site": "cross-site"}, {"Origin": "http://evil.example"}):
            assert asked(port, "GET", "/api/v1/sessions", **foreign) == 403
            assert asked(port, "POST", DRAIN, X_Sedge="1", **foreign) == 403
        assert asked(port, "POST", DRAIN) == 403
        assert asked(port, "POST", DRAIN, X_Sedge="1") == 401
        assert asked(port, "POST", DRAIN, Content_Type="application/json") == 401
        assert asked(port, "DELETE", "/api/v1/sessions/x") == 401
        assert get(f"http://{HOST}:{port}/health/ready") and get(f"http://{HOST}:{port}/metrics")
    client = Client(HOST, cluster.port, V5, timeout=10)
    client.connect("somebody")
    # The commands find it, whatever the address of this machine is called.
    for host in (HOST, "localhost"):
        kick = ["kick", "somebody", "--api", f"http://{host}:{cluster.http}"]
        done = subprocess.run([str(cluster.binary), *kick], capture_output=True, text=True, timeout=20, check=False)
        assert "no_token" not in done.stderr and "wants a token" not in done.stderr, done
    assert asked(cluster.http, "POST", "/api/v1/reload", Authorization=f"Bearer {cluster.token()}") == 200
    assert cluster.stop() == 0
    assert not note.exists()


def test_an_end_that_was_asked_for_is_told_from_a_crash(make_cluster: Callable[..., Cluster]) -> None:
    """OP: emptied and stopped by the API a node ends with 0 and its log says who asked, so that supervisors leave it down; a crash is not 0."""
    cluster = make_cluster(3)
    api = f"http://{HOST}:{cluster.http + 1}"
    subprocess.run([str(cluster.binary), "drain", "--wait", "--stop", "--api", api], check=True, timeout=60, capture_output=True)
    wait_for("the end is told", lambda: "node-2 has ended (exit status: 0)" in cluster.output(), 20)
    log = (cluster.data / "node-2/log").read_text()
    assert "the node is to be emptied asked_by=127.0.0.1:" in log and "stops, as it was asked to" in log
    cluster.kill(2)
    wait_for("the crash is told", lambda: "node-3 has ended (signal: 9" in cluster.output(), 20)
    # Supervisors start a node again after a crash only, and the documents say the same.
    assert "\nRestart=on-failure\n" in (TOP / "deploy/sedge.service").read_text()
    assert "restart: on-failure" in (TOP / "deploy/compose.yml").read_text()
    assert "condition: on-failure" in (TOP / "deploy/stack.yml").read_text()
    assert "exit code 0" in (TOP / "docs/operations.md").read_text()
