"""Why a client gets a publication or not, asked at any node."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
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
    """OP-07: each planted reason is named at a node that does not have the session, and a publication that is said to be sent comes."""
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


RULES = """topic readwrite #
topic readwrite $x/#
client lamp
topic deny gold/vault
client guest
topic deny hall/1/light
"""


def test_more_planted_reasons_are_named_and_nothing_comes(make_cluster: Callable[..., Cluster], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """OP-04: the explanations are true: none of these publications comes, whichever nodes the clients are at."""
    (tmp_path / "acl").write_text(RULES)
    limits = {"ACL__FILE": str(tmp_path / "acl"), "LIMITS__MAX_TOPIC_LEVELS": "6", "LIMITS__MAXIMUM_PACKET_SIZE": "16KiB",
              "LIMITS__MAX_QUEUED_BYTES": "4KiB", "CLUSTER__COPIES": "1"}
    for key, value in limits.items():
        monkeypatch.setenv(f"SEDGE_{key}", value)
    cluster = make_cluster(3)

    def explain(client: str, topic: str, *flags: str, node: int = 1) -> dict[str, Any]:
        command = [str(cluster.binary), "explain", "--client", client, "--topic", topic, "--api", f"http://{HOST}:{cluster.http + node}", "--json", *flags]
        answer: dict[str, Any] = json.loads(subprocess.run(command, capture_output=True, text=True, check=True, timeout=20).stdout)
        return answer

    lamp = connected(cluster, 0, "lamp", props=DAY)
    lamp.subscribe("hall/+/light", "cellar/pump/state", "/attic/fan", "+/vault", qos=1)
    bare = connected(cluster, 0, "bare", props=DAY)
    switch, guest = connected(cluster, 2, "switch"), connected(cluster, 2, "guest")
    unheard = {
        "no_match": "garden/door", "too_few_levels": "cellar/pump", "too_many_levels": "cellar/pump/state/last", "slash": "attic/fan",
        "dollar": "$x/vault", "not_authorized": "gold/vault",
    }
    for cause, topic in unheard.items():
        found = explain("lamp", topic)
        assert (found["cause"], found["gets"]) == (cause, False), found
        switch.publish(topic, cause, qos=1)
    refused = {
        "publish_not_authorized": ("hall/1/light", 0x87, ["--from", "guest"]),
        "topic_too_deep": ("hall/a/b/c/d/e/f", 0x90, []),
        "reserved_topic": ("$SYS/broker/version", 0x87, ["--from", "guest"]),
    }
    for cause, (topic, reason, flags) in refused.items():
        found = explain("lamp", topic, *flags)
        assert (found["cause"], found["gets"]) == (cause, False), found
        guest.publish(topic, cause, qos=1, allowed=(reason,))
    assert "line 6 of acl.file" in explain("lamp", "hall/1/light", "--from", "guest")["detail"]
    assert explain("lamp", "hall/1/light", "--expiry", "0")["cause"] == "expired"
    large = explain("lamp", "hall/1/light", "--bytes", "20000")
    assert large["cause"] == "packet_too_large_for_broker" and "limits.maximum_packet_size" in large["detail"], large
    guest.start_publish("hall/1/light", "x" * 20_000, qos=1)
    guest.expect_closed(0x95)
    assert explain("bare", "hall/1/light")["cause"] == "no_subscription"
    assert explain("lamp", "hall/1/light")["gets"]
    for qos in (0, 1):
        assert explain("lamp", "hall/1/light", "--expiry", "0", "--qos", str(qos))["cause"] == "expired"
        switch.publish("hall/1/light", "over when it comes", qos=qos, props={"message_expiry_interval": 0})
    switch.publish("hall/1/light", "the first that comes", qos=1)
    lamp.message("the first that comes")
    bare.nothing()

    switch.publish("kept/x", "retained", qos=1, retain=True)
    for cause, wanted, topic in (("retain_handling", ("kept/+", 0x21), "kept/x"), ("retained_shared", ("$share/g/kept/x", 0x01), "kept/x")):
        late = connected(cluster, 0, f"late-{cause}", props=DAY)
        late.subscribe(wanted)
        found = explain(late.client_id, topic, "--retained")
        assert (found["cause"], found["gets"]) == (cause, False), found
        late.nothing()
        late.disconnect()

    lamp.drop()
    wait_for("it waits for the lamp", lambda: explain("lamp", "hall/1/light")["outcome"] == "waits")
    for _ in range(2):
        switch.publish("hall/1/light", "x" * 1_900, qos=1)
    full = wait_for("its queue is full", lambda: (found := explain("lamp", "hall/1/light", "--bytes", "1900"))["outcome"] != "waits" and found)
    assert full["cause"] == "queue_bytes_full" and "limits.max_queued_bytes" in full["detail"], full
    cluster.kill(0)
    gone = wait_for("its node is missed", lambda: (found := explain("lamp", "hall/1/light"))["cause"] == "unreachable_node" and found, 30)
    assert not gone["gets"] and "node-1" in gone["detail"], gone


def test_members_of_a_shared_subscription_at_other_nodes_are_counted(make_cluster: Callable[..., Cluster]) -> None:
    """OP-04, MQ-14: one that is away gets nothing while another is connected, wherever; two that are connected take turns."""
    cluster = make_cluster(3)

    def cause(client: str) -> tuple[str, str]:
        command = [str(cluster.binary), "explain", "--client", client, "--topic", "jobs/1", "--api", f"http://{HOST}:{cluster.http + 2}", "--json"]
        found = json.loads(subprocess.run(command, capture_output=True, text=True, check=True, timeout=20).stdout)
        return found["cause"], found["outcome"]

    first, second = connected(cluster, 0, "first", props=DAY), connected(cluster, 1, "second", props=DAY)
    for member in (first, second):
        member.subscribe("$share/workers/jobs/+", qos=1)
    assert [cause("first"), cause("second")] == [("shared_turn", "sent")] * 2
    publisher = connected(cluster, 2, "publisher")
    for number in range(2):
        publisher.publish("jobs/1", str(number), qos=1)
    assert {first.message().payload, second.message().payload} == {b"0", b"1"}
    first.drop()
    wait_for("everybody knows that it is away", lambda: cause("first") == ("shared_elsewhere", "not"))
    assert cause("second") == ("connected", "sent")
    for number in range(4):
        publisher.publish("jobs/1", str(number), qos=1)
    assert [second.message().payload for _ in range(4)] == [b"0", b"1", b"2", b"3"]
