"""The cloud's side of a site, `deploy/cloud`: its files are right, and with a real Kafka they are one path from the edge to a remote user and back."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import kafka
import pytest
from cluster import HOST, get, metric, wait_for
from durable import Node
from kafka import Kafka
from mqttwire import T

CLOUD = Path(__file__).parents[2] / "deploy/cloud"
DEADLINE = 90.0


@pytest.mark.parametrize("name", ["broker.toml", "site.toml"])
def test_the_configurations_are_taken_as_they_are(binary: Path, name: str) -> None:
    """DP-01, OP-02"""
    done = subprocess.run([str(binary), "config", "check", "-c", str(CLOUD / name)], capture_output=True, text=True, timeout=20, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_compose_file_names_what_there_is() -> None:
    """OP-02: every file that it mounts exists, every volume is declared, and every address of broker.toml and prometheus.yml is one of its services."""
    text = (CLOUD / "compose.yml").read_text()
    mounted = re.findall(r'"(\.\.?/[^:"]+):', text)
    assert len(mounted) >= 4 and [one for one in mounted if not (CLOUD / one).exists()] == []
    declared = set(re.findall(r"^  (\w+): \{\}$", text.partition("\nvolumes:\n")[2], re.MULTILINE))
    assert set(re.findall(r'"(\w+):/', text)) == declared
    services = set(re.findall(r"^  (\w+):$", text.partition("\nservices:\n")[2].partition("\nnetworks:")[0], re.MULTILINE))
    named = re.findall(r'"(\w+):\d+"', (CLOUD / "broker.toml").read_text() + (CLOUD / "prometheus.yml").read_text())
    assert {"kafka", "broker"} == set(named) <= services
    assert text.count("restart: on-failure") == len(services), "a container that is drained and stopped stays away"


@pytest.mark.skipif(not shutil.which("promtool"), reason="promtool is not installed")
def test_the_alerts_fire_when_they_should(tmp_path: Path) -> None:
    """OP-08"""
    done = subprocess.run(["promtool", "test", "rules", "bridges_test.yml"], cwd=CLOUD, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    for file in (CLOUD / "prometheus.yml", CLOUD / "bridges.yml", CLOUD.parent / "prometheus/rules.yml"):
        shutil.copy(file, tmp_path)
    subprocess.run(["promtool", "check", "config", "prometheus.yml"], cwd=tmp_path, check=True, capture_output=True)
    explained = (CLOUD.parents[1] / "docs/operations.md").read_text()
    alerts = re.findall(r"alert: (\w+)", (CLOUD / "bridges.yml").read_text())
    assert [alert for alert in alerts if f"`{alert}`" not in explained] == [], "docs/operations.md does not explain them"


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Kafka]:
    """The Kafka of the cloud."""
    running = Kafka(tmp_path).start()
    yield running
    running.stop()


def bridges(name: str, port: int) -> str:
    """The sections for bridges of a file of deploy/cloud, with the address of this Kafka."""
    text = (CLOUD / name).read_text()
    found, count = re.subn(r'address = \["[^"]+"\]', f'address = ["{HOST}:{port}"]', text[text.index("[bridge."):])
    assert count == 2, text
    return found


@pytest.mark.skipif(not kafka.JARS, reason="SEDGE_KAFKA names no folder with Kafka; ./test kafka makes one")
def test_values_reach_a_remote_user_and_commands_the_site(binary: Path, tmp_path: Path, broker: Kafka) -> None:
    """DP-01, DP-04, DP-05: edge broker, Kafka, cloud broker, remote user; and back to an actuator. All four bridges are those of the files."""
    for topic in ("plant", "commands"):
        broker.create(topic)
    ends = [Node(binary, tmp_path / name, "journal") for name in ("site", "cloud")]
    site, cloud = ends
    site.extra, cloud.extra = bridges("site.toml", broker.port), bridges("broker.toml", broker.port)
    site.settings["name"], cloud.settings["name"] = "site", "cloud"
    try:
        for end in ends:
            # Consumer groups are named after the cluster.
            end.environment["SEDGE_CLUSTER__NAME"] = end.data.name
            end.start()
        for end in ends:
            wait_for("both bridges run", lambda e=end: all(
                one["state"] == "running" for one in get(f"http://{HOST}:{e.http}/api/v1/bridges")["bridges"]), DEADLINE)
        user, actuator = cloud.client("user", clean=True), site.client("actuator", clean=True)
        user.subscribe("plant/#", qos=1)
        actuator.subscribe("commands/#", qos=1)
        sensor = site.client("sensor", clean=True)
        for number in range(20):
            sensor.publish("plant/7/temperature", str(number), qos=1)
        for number in range(20):
            user.message(str(number), topic="plant/7/temperature", qos=1, timeout=DEADLINE)
        pid = user.start_publish("commands/fan/7", "on", qos=1)
        actuator.message("on", topic="commands/fan/7", qos=1, timeout=DEADLINE)
        user.expect(T.PUBACK, timeout=DEADLINE, pid=pid)
        assert metric(cloud.http, "sedge_awaited_publications") == 0
    finally:
        for end in ends:
            end.stop()
