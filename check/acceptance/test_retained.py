"""Many retained messages for a new subscriber."""

from __future__ import annotations

import threading
from collections.abc import Callable

import paho.mqtt.client as mqtt
import pytest

from cluster import HOST, Cluster, metric, wait_for

MANY = 4_000


def paho(port: int, name: str) -> mqtt.Client:
    """A connected client with a thread of its own."""
    client = mqtt.Client(mqtt.CallbackAPIVersion.VERSION2, name, protocol=mqtt.MQTTv5)
    client.max_queued_messages_set(0)
    connected = threading.Event()
    client.on_connect = lambda *_: connected.set()
    client.connect(HOST, port)
    client.loop_start()
    assert connected.wait(20)
    return client


def test_the_limits_of_the_queue_cut_no_retained_messages(make_cluster: Callable[..., Cluster], monkeypatch: pytest.MonkeyPatch) -> None:
    """MQ-07, MQ-09: forty times as many as a queue holds, and large ones; from each node, at each QoS, and live messages behind them."""
    monkeypatch.setenv("SEDGE_LIMITS__MAX_QUEUED_MESSAGES", "100")
    monkeypatch.setenv("SEDGE_LIMITS__MAX_QUEUED_BYTES", "1MiB")
    cluster = make_cluster(2)
    ports = cluster.ports()
    publisher = paho(ports[0], "publisher")
    for number in range(MANY):
        publisher.publish(f"kept/{number}", f"{number}", qos=0, retain=True)
    for number in range(20):
        publisher.publish(f"large/{number}", b"x" * 500_000, qos=1, retain=True).wait_for_publish(20)
    wait_for("both nodes have them", lambda: all(metric(cluster.http + node, "sedge_retained_messages") >= MANY + 20 for node in range(2)), 30)
    for node in range(2):
        for qos in range(3):
            got: list[tuple[str, bool, int]] = []
            subscriber = paho(ports[node], f"subscriber-{node}-{qos}")
            subscriber.on_message = lambda _, __, message, got=got: got.append((message.topic, message.retain, len(message.payload)))
            subscriber.subscribe([("kept/#", qos), ("large/#", qos)])
            wait_for(f"all are there at QoS {qos}", lambda got=got: len(got) >= MANY + 20, 60)
            assert all(retain for _, retain, _ in got)
            assert {topic for topic, _, _ in got} == {f"kept/{number}" for number in range(MANY)} | {f"large/{number}" for number in range(20)}
            publisher.publish(f"kept/{MANY - 1}", "live", qos=qos).wait_for_publish(20)
            wait_for("the live one comes behind them", lambda got=got: got[-1] == (f"kept/{MANY - 1}", False, 4))
            assert len(got) == MANY + 21
            subscriber.disconnect()
            subscriber.loop_stop()
    publisher.disconnect()
    publisher.loop_stop()
    assert sum(metric(cluster.http + node, "sedge_dropped_messages_total") for node in range(2)) == 0
