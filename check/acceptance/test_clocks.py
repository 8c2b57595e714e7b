"""Clocks that are apart, and clocks that are set, with the library that lies to a process about the time."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from cluster import HOST, get, wait_for
from durable import DAY, Node
from mqttwire import Will

HOUR_MS = 3_600_000


@pytest.fixture
def three(binary: Path, tmp_path: Path) -> Iterator[list[Node]]:
    """Three nodes with journals; the clock of the first one is an hour ahead, that of the second one a day behind."""
    nodes = [Node(binary, tmp_path / f"node{number}", "journal") for number in range(3)]
    for node, offset in zip(nodes, ("+1h", "-1d", None), strict=True):
        node.environment = {"LD_PRELOAD": library(), "FAKETIME": offset} if offset else {}
        node.seeds = [f"{HOST}:{other.cluster}" for other in nodes if other is not node]
    try:
        for node in nodes:
            node.start()
        wait_for("all are linked", lambda: all(node.is_linked(2) for node in nodes), 30)
        yield nodes
    finally:
        for node in nodes:
            node.stop()


def library() -> str:
    """The library that is loaded into a process to give it a wrong clock."""
    found = sorted(Path("/usr/lib").glob("*/faketime/libfaketime.so.1"))
    assert found, "the package faketime is not there"
    return str(found[0])


def differences(node: Node) -> list[int]:
    """By how many milliseconds the clocks of the others are ahead of this node's."""
    members = get(f"http://{HOST}:{node.http}/api/v1/cluster")["members"]
    return sorted(member["clock_ahead_ms"] for member in members if member["clock_ahead_ms"] is not None)


def test_clocks_that_are_apart_change_nothing_for_clients(three: list[Node]) -> None:
    """MQ-11, FT-20: messages, sessions and wills have their time, also after a crash; and operators hear whose clock is off."""
    away = three[2].client("away")
    away.subscribe("t", qos=1)
    away.close()
    sessions = [three[1].client(f"session-{number}") for number in range(5)]
    watcher = three[2].client("watcher")
    watcher.subscribe("will", qos=1)
    mortal = three[1].client("mortal", will=Will("will", b"gone", qos=1, props={"will_delay_interval": 300}))
    for number, node in enumerate(three):
        publisher = node.client(f"publisher-{number}")
        publisher.publish("t", str(number), qos=1, props={"message_expiry_interval": 60}, allowed=(0,))
        publisher.publish("kept", str(number), qos=1, retain=True, props={"message_expiry_interval": 60})
    three[1].kill()
    again = three[0].client("away")
    for number in range(3):
        got = again.message(str(number))
        assert 1 <= got.props["message_expiry_interval"] <= 60, got.props
    again.subscribe("kept", qos=1)
    assert 1 <= again.message("2").props["message_expiry_interval"] <= 60
    for session in sessions:
        session.close()
        assert three[0].client(session.client_id).connack.session_present, session.client_id
    mortal.close()
    watcher.nothing()
    wait_for("the log says whose clock is off", lambda: "The system clock of node" in three[2].log.read_text(), 30)
    wait_for("the difference is shown", lambda: any(abs(one - HOUR_MS) < 60_000 for one in differences(three[2])), 30)
    text = get(f"http://{HOST}:{three[2].http}/metrics")
    assert "sedge_clock_difference_milliseconds{" in text


def test_a_clock_that_is_set_ends_nothing(binary: Path, tmp_path: Path) -> None:
    """MQ-11: the clock of a node that runs is set on by a day, and the node starts again; messages with an hour left are there each time."""
    node = Node(binary, tmp_path / "node", "fsync")
    clock = tmp_path / "offset"
    clock.write_text("+0\n")
    node.environment = {"LD_PRELOAD": library(), "FAKETIME_TIMESTAMP_FILE": str(clock), "FAKETIME_NO_CACHE": "1"}
    hour = {"message_expiry_interval": 3_600}
    try:
        node.start()
        reader = node.client("reader", props={"session_expiry_interval": 7_200})
        reader.subscribe("t", qos=1)
        reader.close()
        writer = node.client("writer", props=DAY)
        writer.publish("t", "queued", qos=1, props=hour, allowed=(0,))
        writer.publish("kept", "kept", qos=1, retain=True, props=hour)
        clock.write_text("+1d\n")
        writer.publish("t", "later", qos=1, props=hour, allowed=(0,))
        node.kill()
        tomorrow = f"{datetime.now(UTC) + timedelta(days=1):%Y-%m-%d}"
        node.start()
        assert tomorrow in node.log.read_text(), "the clock of the system was not set"
        again = node.client("reader", props={"session_expiry_interval": 7_200})
        assert again.connack.session_present
        for payload in ("queued", "later"):
            assert 3_400 < again.message(payload).props["message_expiry_interval"] <= 3_600
        again.subscribe("kept", qos=1)
        assert again.message("kept").props["message_expiry_interval"] > 3_400
    finally:
        node.stop()
