"""Real clients over TLS, mutual TLS, WebSocket and secure WebSocket (MQ-19), and certificates exchanged under them."""

from __future__ import annotations

import json
import os
import signal
import ssl
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import paho.mqtt.client as paho
import pytest

from cluster import HOST, get, wait_for
from pki import authority, sign

JS = Path(__file__).parent / "js/client.mjs"

CONFIG = """\
[mqtt]
bind = "127.0.0.1"
port = 0
[http]
port = 0
[cluster]
bind = "127.0.0.1"
port = 0
[listener.tls]
bind = "127.0.0.1"
port = 0
cert_file = "{dir}/node.crt"
key_file = "{dir}/node.key"
[listener.mutual]
protocol = "tls"
bind = "127.0.0.1"
port = 0
cert_file = "{dir}/node.crt"
key_file = "{dir}/node.key"
ca_file = "{dir}/ca.crt"
client_cert = "required"
username_from = "cn"
[listener.ws]
bind = "127.0.0.1"
port = 0
[listener.wss]
bind = "127.0.0.1"
port = 0
cert_file = "{dir}/node.crt"
key_file = "{dir}/node.key"
"""


class Node:
    """A node with one listener of each kind."""

    def __init__(self, process: subprocess.Popen[str], directory: Path) -> None:
        assert process.stdout
        ready: dict[str, Any] = json.loads(process.stdout.readline())
        self.process, self.dir, self.http = process, directory, ready["http"]
        self.ports = {listener["name"]: int(listener["address"].rsplit(":", 1)[1]) for listener in ready["listeners"]}

    def session(self, client: str) -> dict[str, Any]:
        """The session of a client."""
        return get(f"http://{self.http}/api/v1/sessions?client={client}")["sessions"][0]


@pytest.fixture(scope="module")
def node(binary: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    """The node of all tests here."""
    directory = tmp_path_factory.mktemp("tls")
    for name in ("ca", "other"):
        authority(directory, name)
    sign(directory, "ca", "node", "node")
    sign(directory, "ca", "sensor", "sensor-7")
    config = directory / "sedge.toml"
    config.write_text(CONFIG.format(dir=directory))
    with (directory / "log").open("w") as log, subprocess.Popen(
        [str(binary), "serve", "--json", "-c", str(config)], stdout=subprocess.PIPE, stderr=log, text=True
    ) as process:
        try:
            yield Node(process, directory)
        finally:
            process.terminate()
            assert process.wait(10) == 0, (directory / "log").read_text()


@contextmanager
def client(node: Node, listener: str, name: str, ca: str = "ca", own: str | None = None) -> Iterator[tuple[paho.Client, list[str]]]:
    """A connected Paho client and the messages that it has received."""
    got: list[str] = []
    transport = "websockets" if listener in ("ws", "wss") else "tcp"
    paho_client = paho.Client(paho.CallbackAPIVersion.VERSION2, client_id=name, transport=transport,
                              protocol=paho.MQTTProtocolVersion.MQTTv5)
    if listener not in ("mqtt", "ws"):
        files = (str(node.dir / f"{own}.crt"), str(node.dir / f"{own}.key")) if own else (None, None)
        paho_client.tls_set(ca_certs=str(node.dir / f"{ca}.crt"), certfile=files[0], keyfile=files[1])
    subscribed = threading.Event()
    paho_client.on_message = lambda _c, _u, message: got.append(message.payload.decode())
    paho_client.on_subscribe = lambda *_: subscribed.set()
    paho_client.connect(HOST, node.ports[listener])
    paho_client.loop_start()
    try:
        wait_for("Paho is connected", paho_client.is_connected)
        paho_client.subscribe("t/#", 1)
        assert subscribed.wait(10), "no SUBACK"
        yield paho_client, got
    finally:
        paho_client.disconnect()
        paho_client.loop_stop()


def test_messages_cross_all_transports(node: Node) -> None:
    """A message from each kind of connection reaches all the others."""
    kinds = {"mqtt": None, "tls": None, "mutual": "sensor", "ws": None, "wss": None}
    with (client(node, "mqtt", "a") as a, client(node, "tls", "b") as b, client(node, "mutual", "c", own="sensor") as c,
          client(node, "ws", "d") as d, client(node, "wss", "e") as e):
        assert node.session("c")["user"] == "sensor-7"
        for (sender, _), kind in zip((a, b, c, d, e), kinds, strict=True):
            sender.publish("t/x", kind + "-" + "x" * 70_000, 1).wait_for_publish(10)
        for _, got in (a, b, c, d, e):
            wait_for("all messages", lambda got=got: len(got) == len(kinds))
            assert [text.split("-")[0] for text in got] == list(kinds)


def test_mqtt_js_with_a_list_of_servers(node: Node, tools: dict[str, str]) -> None:
    """It asks for the path /, whatever the URL says."""
    script = Path(__file__).parent / "js" / "client.mjs"
    servers = ",".join([f"{HOST}:{node.ports['ws']}"] * 2)
    with client(node, "mqtt", "listener") as (_, got):
        command = [tools["node"], str(script), "pub", servers, "5", "t/servers", "1", "3"]
        subprocess.run(command, check=True, timeout=30, capture_output=True)
        wait_for("all messages", lambda: got == ["0", "1", "2"])


def test_strangers_are_refused(node: Node, binary: Path) -> None:
    """A wrong authority is refused by the client, a missing certificate by the node."""
    with pytest.raises(ssl.SSLCertVerificationError), client(node, "tls", "stranger", ca="other"):
        pass
    tls = ["mosquitto_pub", "-h", "localhost", "-t", "t/x", "-m", "hi", "--cafile", str(node.dir / "ca.crt")]
    refused = subprocess.run([*tls, "-p", str(node.ports["mutual"])], capture_output=True, timeout=20, check=False)
    assert refused.returncode != 0
    own = ["--cert", str(node.dir / "sensor.crt"), "--key", str(node.dir / "sensor.key")]
    with client(node, "mqtt", "witness") as (_, got):
        subprocess.run([*tls, "-p", str(node.ports["mutual"]), *own], check=True, timeout=20)
        subprocess.run([*tls, "-p", str(node.ports["tls"]), "-q", "2"], check=True, timeout=20)
        sedge = [str(binary), "pub", *tls[1:], *own]
        subprocess.run([*sedge, "-p", str(node.ports["mutual"]), "-q", "2"], check=True, timeout=20)
        wait_for("all messages", lambda: got == ["hi"] * 3)


def test_sedge_pub_and_sub_over_all_transports(node: Node, binary: Path) -> None:
    """`sedge pub` and `sub` over WebSocket, with and without TLS, and with the authorities of the system."""
    own = ["--cafile", str(node.dir / "ca.crt")]
    urls = {kind: f"{kind}://localhost:{node.ports[kind]}" for kind in ("ws", "wss")}
    with subprocess.Popen([str(binary), "sub", "-L", urls["wss"], *own, "-t", "t/x", "-C", "4"], stdout=subprocess.PIPE) as sub:
        wait_for("the subscription", lambda: "t/x" in json.dumps(get(f"http://{node.http}/api/v1/routes")))
        long = "x" * 70_000
        for url, flags in ((urls["ws"], []), (urls["wss"], own), (f"{urls['ws']}/mqtt", [])):
            subprocess.run([str(binary), "pub", "-L", url, *flags, "-t", "t/x", "-m", long, "-q", "1"], check=True, timeout=20)
        system = {**os.environ, "SSL_CERT_FILE": str(node.dir / "ca.crt")}
        tls = [str(binary), "pub", "-L", f"mqtts://localhost:{node.ports['tls']}/t/x", "-m", "last", "-q", "1"]
        subprocess.run(tls, check=True, timeout=20, env=system)
        assert sub.communicate(timeout=20)[0].decode().split() == [long, long, long, "last"]
    strange = subprocess.run(tls, capture_output=True, timeout=20, check=False, env={**os.environ, "SSL_CERT_FILE": str(node.dir / "other.crt")})
    assert strange.returncode != 0 and b"UnknownIssuer" in strange.stderr, strange.stderr
    other = [str(binary), "pub", "-L", f"{urls['ws']}/elsewhere", "-t", "t/x", "-m", "hi"]
    refused = subprocess.run(other, capture_output=True, timeout=20, check=False)
    assert refused.returncode == 0, "without listener.NAME.path any path is served, as Mosquitto does"


@pytest.mark.parametrize("listener", ["ws", "wss"])
def test_mqtt_js_over_websocket(node: Node, tools: dict[str, str], listener: str) -> None:
    """MQTT.js publishes over WebSocket."""
    url = f"{listener}://localhost:{node.ports[listener]}/mqtt"
    environment = {**os.environ, "NODE_EXTRA_CA_CERTS": str(node.dir / "ca.crt")}
    with client(node, "mqtt", "witness") as (_, got):
        command = [tools["node"], str(JS), "pub", url, "5", "t/js", "1", "300"]
        subprocess.run(command, check=True, timeout=30, env=environment)
        wait_for("all messages", lambda: got == [str(number) for number in range(300)])


def test_certificates_are_exchanged_while_clients_stay(node: Node) -> None:
    """SIGHUP: a broken file changes nothing, a new certificate counts for new connections (MQ-19)."""
    log = node.dir / "log"
    good = (node.dir / "node.crt").read_bytes()
    with client(node, "tls", "stayer") as (_, got):
        (node.dir / "node.crt").write_text("nonsense")
        node.process.send_signal(signal.SIGHUP)
        wait_for("the log says why", lambda: "listener.tls.cert_file: cannot read certificates" in log.read_text())
        with client(node, "tls", "comer"):
            pass
        (node.dir / "node.crt").write_bytes(good)
        sign(node.dir, "other", "node", "node")
        node.process.send_signal(signal.SIGHUP)

        def exchanged() -> int:
            """How many listeners have read theirs; the broken file could not "be read again"."""
            lines = log.read_text().splitlines()
            return sum(1 for line in lines if "listener." in line and "read again" in line and "be read" not in line)

        wait_for("new certificates are in use", lambda: exchanged() == 3)
        with client(node, "tls", "new", ca="other") as (publisher, _):
            publisher.publish("t/x", "still here", 1).wait_for_publish(10)
        with pytest.raises(ssl.SSLCertVerificationError), client(node, "tls", "old"):
            pass
        wait_for("the one that stayed gets it", lambda: got == ["still here"])
