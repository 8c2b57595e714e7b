"""Messages with latency bounds: the earliest deadline goes first where messages wait (FW-02)."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from client import Client
from cluster import HOST, metric, wait_for
from durable import Node
from mqttwire import V5, V311

DEADLINES = "[deadlines]\nproperty = \"deadline-ms\"\npayload_tag = \"deadline_ms\"\n"


def slow(node: Node) -> Client:
    """A subscriber that takes one message at a time."""
    client = Client(HOST, node.port, V5, timeout=20)
    client.connect("slow", clean=True, props={"receive_maximum": 1})
    client.subscribe("#", qos=1)
    return client


@pytest.mark.parametrize("version", [V5, V311])
def test_what_is_urgent_leaves_a_queue_first(make_site: Callable[..., list[Node]], version: int) -> None:
    """FW-02: a user property, with 3.1.1 a member of the payload; the publisher is at another node."""
    nodes = make_site(DEADLINES, 3, "memory")
    subscriber = slow(nodes[0])
    publisher = nodes[1].client("publisher", version=version, clean=True)
    for number in range(50):
        publisher.publish("bulk", f"{number}", qos=1)
    payload = json.dumps({"what": "fire", "deadline_ms": 60_000})
    props = {"user_property": [("deadline-ms", "60000")]}
    options = {"props": props} if version == V5 else {}
    publisher.publish("alarm", "fire" if version == V5 else payload, qos=1, **options)
    wait_for("everything waits", lambda: metric(nodes[0].http, "sedge_queued_messages") == 50)
    topics = [subscriber.message(timeout=20).topic for _ in range(51)]
    assert topics == ["bulk", "alarm", *["bulk"] * 49]
    assert metric(nodes[0].http, "sedge_deadlines_first_total") == 1
    assert metric(nodes[0].http, "sedge_deadlines_missed_total") == 0


def test_under_overload_urgent_messages_miss_fewer_deadlines(make_site: Callable[..., list[Node]]) -> None:
    """FW-02: half as many are taken as come; a message is late when it is taken after ten more have come. The same load with deadlines and without."""
    def late(sections: str) -> int:
        (node,) = make_site(sections, durability="memory")
        subscriber, publisher = slow(node), node.client("publisher", clean=True)
        in_time = 0
        for number in range(400):
            is_urgent = number % 8 == 0
            props = {"user_property": [("deadline-ms", "60000")]} if is_urgent else None
            publisher.publish("alarm" if is_urgent else "bulk", str(number), qos=1, props=props)
            if number % 2:
                got = subscriber.message()
                in_time += got.topic == "alarm" and number - int(got.payload) <= 10
        node.stop()
        return 50 - in_time

    in_order, by_deadline = late(""), late(DEADLINES)
    assert in_order > 40 and by_deadline < 5, f"{by_deadline} of 50 late by deadline, {in_order} in order"
