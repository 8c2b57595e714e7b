"""Unmodified clients on different nodes: exactly one copy of each message, in order (FT-01, MQ-04..MQ-06, MQ-13)."""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import paho.mqtt.client as paho
import pytest

from cluster import HOST, Cluster, wait_for

COUNT = 10_000
JS = Path(__file__).parent / "js/client.mjs"
NUMBERS = [str(number) for number in range(COUNT)]


@contextmanager
def paho_client(port: int, version: int, **callbacks: object) -> Iterator[paho.Client]:
    """A connected Paho client with its loop running."""
    client = paho.Client(paho.CallbackAPIVersion.VERSION2, protocol=paho.MQTTProtocolVersion(version))
    client.max_queued_messages_set(0)
    for name, function in callbacks.items():
        setattr(client, name, function)
    client.connect(HOST, port)
    client.loop_start()
    wait_for("Paho is connected", client.is_connected)
    try:
        yield client
    finally:
        client.disconnect()
        client.loop_stop()


@contextmanager
def paho_subscriber(port: int, version: int, topic: str, qos: int) -> Iterator[Callable[[], list[str]]]:
    """Subscribed when entered; gives the messages that have arrived so far."""
    got: list[str] = []
    subscribed = threading.Event()
    with paho_client(port, version, on_message=lambda _c, _u, message: got.append(message.payload.decode()),
                     on_subscribe=lambda *_: subscribed.set()) as client:
        client.subscribe(topic, qos)
        assert subscribed.wait(10), "no SUBACK"
        yield lambda: got


@contextmanager
def process_subscriber(command: list[str], ready: str) -> Iterator[Callable[[], list[str]]]:
    """A program that prints a line beginning with `ready` after its SUBACK and then one payload a line."""
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    got: list[str] = []
    subscribed = threading.Event()

    def read() -> None:
        assert process.stdout
        for line in process.stdout:
            if subscribed.is_set():
                got.append(line.rstrip("\n"))
            elif line.startswith(ready):
                subscribed.set()

    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    try:
        assert subscribed.wait(20), f"{command[0]} did not subscribe"
        yield lambda: [line for line in got if not line.startswith("Client ")]
    finally:
        process.kill()
        process.wait()
        reader.join()


def subscriber(kind: str, cluster: Cluster, tools: dict[str, str], topic: str, qos: int):  # noqa: ANN201
    """A subscriber of this kind on node 1."""
    port = cluster.port
    match kind:
        case "paho-3.1.1":
            return paho_subscriber(port, paho.MQTTv311, topic, qos)
        case "paho-5.0":
            return paho_subscriber(port, paho.MQTTv5, topic, qos)
        case "mqtt.js":
            return process_subscriber(
                [tools["node"], str(JS), "sub", f"mqtt://{HOST}:{port}", "5", topic, str(qos), str(COUNT + 1)], "ready")
        case _:
            return process_subscriber(
                ["stdbuf", "-oL", tools["mosquitto_sub"], "-h", HOST, "-p", str(port), "-t", topic, "-q", str(qos), "-d",
                 "-F", "%p"], "Subscribed")


def publish(kind: str, cluster: Cluster, tools: dict[str, str], topic: str, qos: int) -> None:
    """Publishes the numbers on node 3 and waits until the client is done."""
    port = cluster.port + 2
    match kind:
        case "mqtt.js":
            subprocess.run([tools["node"], str(JS), "pub", f"mqtt://{HOST}:{port}", "4", topic, str(qos), str(COUNT)],
                           check=True, timeout=120)
        case "mosquitto":
            subprocess.run([tools["mosquitto_pub"], "-h", HOST, "-p", str(port), "-t", topic, "-q", str(qos), "-l"],
                           input="\n".join(NUMBERS) + "\n", text=True, check=True, timeout=120)
        case _:
            with paho_client(port, paho.MQTTv311 if kind == "paho-3.1.1" else paho.MQTTv5) as client:
                infos = [client.publish(topic, number, qos) for number in NUMBERS]
                wait_for("Paho has published all", lambda: infos[-1].is_published(), 120)
                wait_for("Paho has published all", lambda: all(info.is_published() for info in infos), 120)


PAIRS = [
    ("paho-3.1.1", "paho-5.0"), ("paho-5.0", "mosquitto"), ("mqtt.js", "paho-3.1.1"), ("mosquitto", "mqtt.js"),
]


@pytest.mark.parametrize("qos", [0, 1, 2])
@pytest.mark.parametrize(("listening", "speaking"), PAIRS)
def test_each_of_10_000_messages_arrives_once_and_in_order(
    cluster: Cluster, tools: dict[str, str], listening: str, speaking: str, qos: int,
) -> None:
    """FT-01 MQ-04 MQ-05 MQ-06 MQ-13: subscriber on node 1, publisher on node 3."""
    topic = f"order/{listening}/{speaking}/{qos}"
    with subscriber(listening, cluster, tools, topic, qos) as received:
        publish(speaking, cluster, tools, topic, qos)
        wait_for(f"{COUNT} messages", lambda: len(received()) >= COUNT, 60)
        with paho_client(cluster.port + 2, paho.MQTTv5) as client:
            client.publish(topic, "last", 2).wait_for_publish(10)
        wait_for("the last message", lambda: "last" in received()[-1:], 20)
        # Compared as a whole only when different: a diff of 10,000 lines helps nobody.
        got = received()[:-1]
        wrong = [(at, a, b) for at, (a, b) in enumerate(zip(NUMBERS, got, strict=False)) if a != b][:5]
        assert len(got) == COUNT and not wrong, f"{len(got)} messages, first differences {wrong}"
