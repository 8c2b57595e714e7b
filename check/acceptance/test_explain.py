"""Why a client gets a publication or not, asked at any node."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from typing import Any

import pytest

from client import Client
from cluster import HOST, Cluster, wait_for
from mqttwire import V5

DAY = {"session_expiry_interval": 86_400}


def connected(cluster: Cluster, node: int, name: str, **options: object) -> Client:
    """A client of this node."""
    client = Client(HOST, cluster.ports()[node], V5, timeout=10)
    client.connect(name, **options)
    return client


def test_explain_names_what_decides_from_any_node(make_cluster: Callable[..., Cluster], monkeypatch: pytest.MonkeyPatch) -> None:
    """OP-07: each planted reason is named at a node that does not have the session, and what is said to be sent comes."""
    monkeypatch.setenv("SEDGE_LIMITS__MAX_QUEUED_MESSAGES", "2")
    cluster = make_cluster(3)

    def explain(client: str, topic: str, *flags: str, node: int = 2) -> dict[str, Any]:
        command = [str(cluster.binary), "explain", "--client", client, "--topic", topic, "--api", f"http://{HOST}:{cluster.http + node}", "--json", *flags]
        answer: dict[str, Any] = json.loads(subprocess.run(command, capture_output=True, text=True, check=True, timeout=20).stdout)
        return answer

    lamp = connected(cluster, 0, "lamp", props={**DAY, "maximum_packet_size": 2_000})
    lamp.subscribe(("hall/+/light", 0x05))  # QoS 1, No Local
    sent = explain("lamp", "hall/1/light", "--qos", "2")
    assert (sent["gets"], sent["outcome"], sent["qos"], sent["filter"]) == (True, "sent", 1, "hall/+/light"), sent
    assert sent["node"] == cluster.api(0, "status")["node"]
    connected(cluster, 2, "switch").publish("hall/1/light", "on", qos=2)
    lamp.message("on", qos=1)
    planted = {
        "other_level": ("hall/1/heat",),
        "letter_case": ("Hall/1/light",),
        "no_local": ("hall/1/light", "--from", "lamp"),
        "packet_too_large": ("hall/1/light", "--bytes", "5000"),
    }
    for cause, question in planted.items():
        found = explain("lamp", *question)
        assert (found["cause"], found["gets"], found["outcome"]) == (cause, False, "not"), found
        assert found["detail"]
    lamp.close()
    wait_for("it waits for the lamp", lambda: explain("lamp", "hall/1/light")["outcome"] == "waits")
    assert explain("lamp", "hall/1/light", "--qos", "0")["cause"] == "offline_qos0"
    publisher = connected(cluster, 1, "publisher")
    for number in range(2):
        publisher.publish("hall/1/light", str(number), qos=1)
    wait_for("the queue is full", lambda: explain("lamp", "hall/1/light")["cause"] == "queue_full")
    assert explain("nobody", "hall/1/light")["cause"] == "no_session"
    text = subprocess.run([str(cluster.binary), "explain", "--client", "lamp", "--topic", "hall/1/heat", "--api", f"http://{HOST}:{cluster.http + 1}"],
                          capture_output=True, text=True, check=True, timeout=20).stdout
    assert text.startswith("lamp would not get a publication to hall/1/heat") and "heat" in text
    wrong = subprocess.run([str(cluster.binary), "explain", "--client", "lamp", "--topic", "a/#", "--api", f"http://{HOST}:{cluster.http + 1}"],
                           capture_output=True, text=True, check=False, timeout=20)
    assert wrong.returncode != 0 and "a/#" in wrong.stderr
