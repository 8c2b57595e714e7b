"""Log lines about clients that are refused."""

from __future__ import annotations

import json
import socket
import ssl
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cluster import HOST, wait_for
from pki import authority, sign

CONFIG = """\
[mqtt]
bind = "127.0.0.1"
port = 0
[http]
port = 0
[cluster]
bind = "127.0.0.1"
port = 0
[auth]
password_file = "{dir}/passwords"
[acl]
file = "{dir}/rules"
[log]
format = "json"
[listener.tls]
bind = "127.0.0.1"
port = 0
cert_file = "{dir}/node.crt"
key_file = "{dir}/node.key"
[listener.ws]
bind = "127.0.0.1"
port = 0
path = ["/mqtt", "/ws"]
"""


class Refusing:
    """A node with accounts and rules, and its log."""

    def __init__(self, ports: dict[str, int], log: Path) -> None:
        self.ports, self.log = ports, log

    def line(self, **wanted: str) -> dict[str, Any]:
        """The first line whose fields contain these."""

        def find() -> dict[str, Any] | None:
            lines = [json.loads(line) for line in self.log.read_text().splitlines() if line.startswith("{")]
            flat = [line | line.get("fields", {}) for line in lines]
            return next((line for line in flat if all(text in str(line.get(key, "")) for key, text in wanted.items())), None)

        found = wait_for(f"a line with {wanted}", find)
        assert found is not None
        return found


@pytest.fixture(scope="module")
def node(binary: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Refusing]:
    """The node of all tests here."""
    directory = tmp_path_factory.mktemp("refusals")
    authority(directory, "ca")
    sign(directory, "ca", "node", "node")
    (directory / "passwords").touch(mode=0o600)
    subprocess.run(["mosquitto_passwd", "-b", str(directory / "passwords"), "anna", "secret"], check=True, capture_output=True)
    (directory / "rules").write_text("user anna\ntopic readwrite home/#\n")
    config = directory / "sedge.toml"
    config.write_text(CONFIG.format(dir=directory))
    with (directory / "log").open("w") as log, subprocess.Popen(
        [str(binary), "serve", "--json", "-c", str(config)], stdout=subprocess.PIPE, stderr=log, text=True
    ) as process:
        try:
            assert process.stdout
            ready = json.loads(process.stdout.readline())
            ports = {one["name"]: int(one["address"].rsplit(":", 1)[1]) for one in ready["listeners"]}
            yield Refusing(ports, directory / "log")
        finally:
            process.terminate()
            process.wait(10)


def publish(node: Refusing, client: str, password: str, topic: str) -> None:
    """One publication of Mosquitto's client, whatever becomes of it."""
    command = ["mosquitto_pub", "-h", HOST, "-p", str(node.ports["mqtt"]), "-i", client, "-u", "anna", "-P", password]
    subprocess.run([*command, "-t", topic, "-m", "x", "-q", "1"], capture_output=True, timeout=20, check=False)


def test_a_wrong_password_is_told_with_client_user_listener_and_key(node: Refusing) -> None:
    """MQ-19"""
    publish(node, "probe-1", "wrong", "home/x")
    line = node.line(message="client refused", client="probe-1")
    assert (line["user"], line["listener"], line["key"]) == ("anna", "mqtt", "auth.password_file")
    assert "wrong user name or password" in line["detail"]


def test_a_refused_publication_is_told_with_topic_and_key(node: Refusing) -> None:
    """MQ-19"""
    publish(node, "probe-2", "secret", "other/x")
    line = node.line(message="request refused", client="probe-2")
    assert (line["user"], line["listener"], line["topic"], line["key"]) == ("anna", "mqtt", "other/x", "acl.file")


@pytest.mark.parametrize(
    ("listener", "first", "words"),
    [
        ("mqtt", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc", "this looks like TLS"),
        ("mqtt", b"GET /mqtt HTTP/1.1\r\n\r\n", "this looks like HTTP"),
        ("tls", b"\x10\x0d\x00\x04MQTT\x04\x02\x00\x3c\x00\x01c", "this looks like MQTT without TLS"),
        ("ws", b"\x10\x0d\x00\x04MQTT\x04\x02\x00\x3c\x00\x01c\r\n", "this looks like MQTT without WebSocket"),
    ],
)
def test_another_protocol_is_called_by_its_name(node: Refusing, listener: str, first: bytes, words: str) -> None:
    """MQ-12"""
    with socket.create_connection((HOST, node.ports[listener]), timeout=10) as stranger:
        stranger.sendall(first)
        while stranger.recv(4096):
            pass
    key = "hint" if listener != "mqtt" else "detail"
    line = node.line(**{"message": "refused", "listener": listener, key: words})
    assert line["peer"].startswith(HOST)


def test_tls_and_websocket_that_do_not_come_about_are_told(node: Refusing) -> None:
    """MQ-19"""
    context = ssl.create_default_context()
    with socket.create_connection((HOST, node.ports["tls"]), timeout=10) as plain, pytest.raises(ssl.SSLError):
        context.wrap_socket(plain, server_hostname="node")
    line = node.line(message="connection refused", listener="tls", key="listener.NAME.cert_file")
    assert "TLS" in line["cause"]
    with socket.create_connection((HOST, node.ports["ws"]), timeout=10) as wrong:
        wrong.sendall(b"GET /elsewhere HTTP/1.1\r\nHost: x\r\n\r\n")
        assert wrong.recv(12) == b"HTTP/1.1 404"
    assert "listener.NAME.path" in node.line(message="connection refused", listener="ws", cause="no MQTT at this path")["cause"]
