"""Interfaces that operators of a node rely on: $SYS, Mosquitto's configuration, an orderly stop, the systemd unit."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
from collections.abc import Callable
from pathlib import Path

import mqttwire as w
import paho.mqtt.client as paho
import pytest

from client import Client
from cluster import HOST, Cluster, free_base, get, metric, wait_for
from mqttwire import T, V5

UNIT = Path(__file__).parents[2] / "deploy/sedge.service"
# Topics with Mosquitto's figures of its allocator, which say nothing about another program.
ONLY_MOSQUITTO = {"$SYS/broker/heap/current", "$SYS/broker/heap/maximum"}


def is_ready(port: int) -> bool:
    """Whether the node with this HTTP port is."""
    try:
        return bool(get(f"http://{HOST}:{port}/health/ready")["ready"])
    except OSError:
        return False


def sys_topics(tools: dict[str, str], port: int) -> dict[str, str]:
    """Topics and values below $SYS/broker that mosquitto_sub prints at once."""
    command = [tools["mosquitto_sub"], "-h", HOST, "-p", str(port), "-t", "$SYS/broker/#", "--retained-only", "-W", "2", "-F", "%t=%p"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=20)
    return dict(line.split("=", 1) for line in done.stdout.splitlines())


def test_the_sys_topics_are_those_of_mosquitto(cluster: Cluster, tools: dict[str, str]) -> None:
    """OP-07: every topic of the Mosquitto that is installed here, with values of the same form."""
    mosquitto = shutil.which("mosquitto", path="/usr/sbin:/usr/bin")
    assert mosquitto, "mosquitto is missing; ./test installs it"
    port = cluster.port + 50
    broker = subprocess.Popen([mosquitto, "-p", str(port)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        theirs = wait_for("Mosquitto tells about itself", lambda: sys_topics(tools, port), 20)
    finally:
        broker.terminate()
        broker.wait(10)
    ours = sys_topics(tools, cluster.port)
    assert theirs.keys() - ours.keys() == ONLY_MOSQUITTO
    assert ours.keys() <= theirs.keys() | {"$SYS/broker/clients/maximum"}
    assert ours["$SYS/broker/uptime"].endswith(" seconds") and theirs["$SYS/broker/uptime"].endswith(" seconds")
    numbers = [topic for topic in ours if topic.split("/")[-1] not in ("version", "uptime")]
    assert all(float(ours[topic]) >= 0 for topic in numbers)


def test_all_nodes_can_be_read_at_one(make_cluster: Callable[..., Cluster], monkeypatch: pytest.MonkeyPatch) -> None:
    """OP-07: by a Paho client at node 1, within one interval."""
    monkeypatch.setenv("SEDGE_SYS__INTERVAL", "500ms")
    cluster = make_cluster(3)
    seen: set[str] = set()
    client = paho.Client(paho.CallbackAPIVersion.VERSION2, "watcher")
    client.on_message = lambda _client, _data, message: seen.add(message.topic)
    client.connect(HOST, cluster.port)
    client.subscribe("$SYS/brokers/+/clients/connected")
    client.loop_start()
    wanted = {f"$SYS/brokers/node-{number}/clients/connected" for number in (1, 2, 3)}
    wait_for("all nodes have told", lambda: seen >= wanted, 15)
    client.disconnect()
    client.loop_stop()


def test_an_orderly_stop_says_good_bye_and_publishes_wills(make_cluster: Callable[..., Cluster]) -> None:
    """MQ-08: SIGTERM ends in time with DISCONNECT; wills of the clients reach those at other nodes."""
    cluster = make_cluster(2)
    watcher = Client(HOST, cluster.port, V5, timeout=10)
    watcher.connect("watcher")
    watcher.subscribe("wills", qos=1)
    client = Client(HOST, cluster.port + 1, V5, timeout=10)
    client.connect("leaver", will=w.Will("wills", b"gone", qos=1))
    os.kill(cluster.pids[1], signal.SIGTERM)
    assert [packet.reason for packet in client.read_until_closed() if packet.type == T.DISCONNECT] == [0x8B]
    assert watcher.message().payload == b"gone"


def test_the_systemd_unit_is_valid(binary: Path, tmp_path: Path) -> None:
    """As systemd reads it, with the program where it is here; and closed to the outside as far as a broker can be."""
    analyze = shutil.which("systemd-analyze")
    if analyze is None:
        pytest.skip("systemd-analyze is not installed here")
    unit = tmp_path / "sedge.service"
    unit.write_text(UNIT.read_text().replace("/usr/bin/sedge", str(binary)))
    # The man page that the unit names comes with the package.
    done = subprocess.run([analyze, "verify", "--man=no", str(unit)], capture_output=True, text=True, timeout=30)
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    done = subprocess.run([analyze, "security", "--offline=true", "--threshold=13", str(unit)], capture_output=True, text=True, timeout=30)
    assert done.returncode == 0, done.stdout


def test_a_flood_of_connections_does_not_fill_the_log(binary: Path, tmp_path: Path) -> None:
    """Lines beyond the limit are counted, none is lost from the sum."""
    port, http, cluster = free_base(1)
    config = tmp_path / "sedge.toml"
    config.write_text(f"[node]\nshards = 1\n[mqtt]\nport = {port}\n[http]\nport = {http}\n[cluster]\nport = {cluster}\n[log]\nlines_per_second = 5\n")
    log = tmp_path / "log"
    with log.open("w") as stderr:
        node = subprocess.Popen([str(binary), "serve", "-c", str(config)], stderr=stderr, stdout=subprocess.DEVNULL)
    try:
        wait_for("the node is ready", lambda: is_ready(http))
        for _ in range(300):
            with socket.create_connection((HOST, port), timeout=5) as rude:
                rude.sendall(b"GET / HTTP/1.1\r\n\r\n")
                assert rude.recv(1) == b""
        written = log.read_text().count("client refused")
        suppressed = metric(http, "sedge_log_lines_suppressed_total", kind="refused")
        assert written + suppressed == 300 and 5 <= written < 300, (written, suppressed)
    finally:
        node.terminate()
        node.wait(10)
