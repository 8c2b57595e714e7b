"""The application in `examples/`: it runs with one command, and keeps the promises of its parts."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from cluster import HOST, Cluster, wait_for

EXAMPLES = Path(__file__).parents[2] / "examples"
sys.path.insert(0, str(EXAMPLES))

import vendor  # noqa: E402
from consumer import Consumer  # noqa: E402
from interest import Interest  # noqa: E402
from producer import Producer  # noqa: E402


def at(cluster: Cluster, *nodes: int) -> list[str]:
    """Addresses of these nodes."""
    return [f"{HOST}:{cluster.ports()[node]}" for node in nodes]


def filters(cluster: Cluster, client: str) -> set[str]:
    """The filters that the cluster says a client is subscribed to, without those for its answers."""
    found: set[str] = set()
    for node in range(cluster.nodes):
        for session in cluster.api(node, "sessions?limit=1000")["sessions"]:
            if session["client"] == client:
                found |= {one["filter"] for one in session["subscriptions"]}
    return {one for one in found if not one.startswith("greenhouse-answers/")}


def test_it_runs_with_one_command(cluster: Cluster) -> None:
    """OP-10: values come, and none is missing in the end."""
    command = [sys.executable, str(EXAMPLES / "run"), "--seconds", "3", *[word for one in at(cluster, 0, 1, 2) for word in ("--at", one)]]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    *shown, last = done.stdout.splitlines()
    assert "of 2 houses" in last and last.endswith(", 0 missing"), last
    assert {line.split()[0] for line in shown} == {"north", "south"} and "°C" in shown[0]


def test_without_a_cluster_it_says_what_to_do(cluster: Cluster) -> None:
    """OP-10"""
    command = [sys.executable, str(EXAMPLES / "run"), "--seconds", "1", "--at", f"{HOST}:1"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL, check=False)
    assert done.returncode != 0 and "sedge up" in done.stderr, done.stderr


def test_the_actuator_reacts_to_a_remote_sensor_and_interest_becomes_subscriptions(cluster: Cluster) -> None:
    """OP-10, O23: a fan at one node is switched by a consumer at another one; the device is subscribed to just the topics that it cares for."""
    producer = Producer("hot", at(cluster, 0))
    interest = Interest(["hot"])
    consumer = Consumer(interest, at(cluster, 2), name="example-consumer", shows=False)
    try:
        wait_for("it is subscribed", lambda: filters(cluster, "example-consumer") == {vendor.temperature("hot")})
        for celsius, fan in ((30.0, "on"), (20.0, "off")):
            wait_for(f"the fan is {fan}", lambda c=celsius, f=fan: (producer.measure(c), producer.fan)[1] == f)
        assert interest.told("+ cold") and interest.told("- hot") and not interest.told("+ a/b") and not interest.told("hot")
        wait_for("it is subscribed to the other one", lambda: filters(cluster, "example-consumer") == {vendor.temperature("cold")})
        count = len(consumer.houses["hot"].values)
        other = Producer("cold", at(cluster, 1))
        wait_for("values of the other house come", lambda: (producer.measure(), other.measure(), "cold" in consumer.houses)[2])
        assert len(consumer.houses["hot"].values) == count
        other.link.stop()
    finally:
        consumer.link.stop()
        producer.link.stop()


def test_the_consumer_recovers_what_it_missed(make_cluster: Callable[..., Cluster]) -> None:
    """OP-10, O22: kill -9 of the consumer's node: with QoS 0 nothing is kept for it, and it asks the producer for the numbers that it has not seen."""
    cluster = make_cluster(3)
    producer = Producer("north", at(cluster, 0))
    consumer = Consumer(Interest(["north"]), at(cluster, 2, 1), name="example-consumer", shows=False)
    try:
        wait_for("values come", lambda: (producer.measure(), len(consumer.houses["north"].values) > 20 if consumer.houses else False)[1])
        house = consumer.houses["north"]
        first, before = min(house.values), house.next
        cluster.kill(2)
        until = time.monotonic() + 1
        while time.monotonic() < until or house.next <= before + 50:
            producer.measure()
            time.sleep(0.005)  # a sensor's pace
            assert time.monotonic() < until + 30, "nothing comes after the node is gone"
        wait_for("nothing is missing", lambda: (producer.measure(), not house.missing)[1], 30)
        assert consumer.recovered > 0, "the death of the node has cost no message: this has tested nothing"
        assert set(range(first, before + 50)) <= set(house.values)
    finally:
        consumer.link.stop()
        producer.link.stop()


@pytest.mark.parametrize("payload", [b"", b"\xff", b"[]", b"{}", b'{"number": "1", "life": 2, "celsius": []}', b'{"number": -1, "life": "x", "celsius": 1}',
                                      b'{"number": 1000000000000, "life": "x", "celsius": 1}'])
def test_messages_in_another_format_do_no_harm(cluster: Cluster, payload: bytes) -> None:
    """OP-10: the topic is anybody's; a payload that is no value changes nothing."""
    consumer = Consumer(Interest(["odd"]), at(cluster, 0), shows=False)
    producer = Producer("odd", at(cluster, 1))
    try:
        wait_for("values come", lambda: (producer.measure(), "odd" in consumer.houses)[1])
        producer.link.client.publish(vendor.temperature("odd"), payload, 1)
        producer.link.client.publish(vendor.again("odd"), payload, 1)
        count = len(consumer.houses["odd"].values)
        wait_for("values come still", lambda: (producer.measure(), len(consumer.houses["odd"].values) > count + 3)[1])
    finally:
        consumer.link.stop()
        producer.link.stop()
