"""Data that survives: kill -9 again and again under load, full journals, damaged files."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import mqttwire as w
from client import Client
from cluster import HOST, metric, wait_for
from durable import Node, Publisher, Subscriber, first_times, pump
from mqttwire import V311, T


@pytest.mark.parametrize("durability", ["journal", "fsync"])
def test_kill_9_under_load_loses_nothing(make_node: Callable[..., Node], durability: str) -> None:
    """FT-21, FT-29, MQ-05, MQ-06, MQ-09, MQ-13: numbered messages with QoS 1 and 2 while the process is killed again and again:
    nothing acknowledged is lost, nothing with QoS 2 comes twice, and the order stays."""
    rounds = int(os.environ.get("SEDGE_KILLS", "10"))
    node = make_node(durability)
    # Several of each, so that there are pairs on one shard and pairs on two.
    publishers = [Publisher(f"pub-{qos}-{i}", f"load/{qos}/{i}", qos) for qos in (1, 2) for i in range(3)]
    subscribers = [Subscriber(f"sub-{p.qos}-{p.topic[-1]}", p.topic, p.qos) for p in publishers]
    for side in [*subscribers, *publishers]:
        side.connect(node)
    for round_number in range(rounds):
        until = time.monotonic() + 0.25 + 0.05 * (round_number % 7)
        while time.monotonic() < until:
            for publisher in publishers:
                if len(publisher.open) < 20:
                    publisher.publish()
            for side in [*publishers, *subscribers]:
                assert pump(side)
        node.kill()
        # The packets that were still on their way to the clients have arrived; the tests' sockets are read to their ends.
        for side in [*publishers, *subscribers]:
            while pump(side):
                pass
        node.start()
        for side in [*subscribers, *publishers]:
            side.connect(node)
    deadline = time.monotonic() + 30
    while any(p.open for p in publishers) or any(
        len(set(s.got)) < p.next for s, p in zip(subscribers, publishers, strict=True)
    ):
        assert time.monotonic() < deadline, [
            (p.name, p.next, len(p.open), sorted(set(range(p.next)) - set(s.got))[:10])
            for s, p in zip(subscribers, publishers, strict=True)
        ]
        for side in [*publishers, *subscribers]:
            assert pump(side)
    for publisher, subscriber in zip(publishers, subscribers, strict=True):
        assert set(publisher.acknowledged) <= set(subscriber.got)
        assert first_times(subscriber.got) == sorted(set(subscriber.got)), f"{subscriber.name}: out of order"
        if publisher.qos == 2:
            assert len(subscriber.got) == len(set(subscriber.got)), f"{subscriber.name}: a message came twice"
    print(f"\n{durability}: {rounds} kills, {sum(len(s.got) for s in subscribers)} messages, "
          f"{sum(len(s.got) - len(set(s.got)) for s in subscribers)} repetitions with QoS 1")


def test_everything_that_lasts_is_there_after_a_kill(make_node: Callable[..., Node]) -> None:
    """MQ-07, MQ-08, MQ-09, FT-29: subscriptions, offline queues, retained messages, cleared topics and delayed wills, also with
    another number of shards."""
    node = make_node("journal")
    sleepers = [node.client(f"sleeper-{i}", V311) for i in range(4)]
    for sleeper in sleepers:
        sleeper.subscribe(("queue/#", 2), ("wills/#", 1))
        sleeper.drop()
    speaker = node.client("speaker", clean=True, props={})
    for number in range(50):
        speaker.publish("queue/x", str(number), qos=1 + number % 2)
    speaker.publish("state/a", "kept", qos=1, retain=True)
    speaker.publish("state/b", "cleared", qos=1, retain=True)
    speaker.publish("state/b", b"", qos=1, retain=True)
    node.client("mortal", props={"session_expiry_interval": 600}, will=w.Will("wills/mortal", b"late", 1, props={"will_delay_interval": 1}))
    for shards in (2, 3, 1):
        node.kill()
        node.settings["shards"] = shards
        node.start()
        reader = node.client("reader", clean=True, props={})
        reader.subscribe("state/#", qos=1)
        assert reader.message("kept").retain
        speaker = node.client("speaker", clean=True, props={})
        speaker.publish("state/c", "end", qos=1)
        reader.message("end")
    wait_for("the will is published", lambda: metric(node.http, "sedge_wills_total") >= 1)
    for sleeper in sleepers:
        again = node.client(sleeper.client_id, V311)
        assert again.connack and again.connack.session_present
        payloads = [again.message().payload for _ in range(51)]
        assert sorted(payloads, key=lambda text: text == b"late") == [*(str(n).encode() for n in range(50)), b"late"]
    journal = node.status()["journal"]
    assert isinstance(journal, dict) and journal["recovery"]["sessions"] >= 4 and not journal["recovery"]["missing_batches"]


@pytest.mark.parametrize("end", ["connection", "process"])
@pytest.mark.parametrize("shards", [1, 2])
def test_shares_of_an_ended_session_go_to_the_other_member(make_node: Callable[..., Node], shards: int, end: str) -> None:
    """MQ-14, FT-29: what a member of a shared subscription had not acknowledged when its session ended with its connection, or with
    the broker, goes to the member that stays, on the same thread or on another one."""
    node = make_node("journal", shards=shards)
    staying = node.client("staying")
    leaving = node.client("leaving", clean=True, props={})
    for member in (staying, leaving):
        member.subscribe("$share/group/job", qos=1)
    speaking = node.client("speaking", clean=True, props={})
    for number in range(20):
        speaking.publish("job", str(number), qos=1)
    found: list[int] = []

    def came() -> int:
        staying.ping()
        while any(packet.type == T.PUBLISH for packet in staying.inbox):
            found.append(int(staying.message().payload))
        return len(set(found))

    wait_for("each has some", lambda: (leaving.ping(), 0 < came() < 20 and len(leaving.inbox) + len(found) == 20)[1])
    if end == "connection":
        leaving.drop()
    else:
        node.kill()
        node.start()
        staying = node.client("staying")
    wait_for("the one that stays has all", lambda: came() == 20)


def test_a_full_journal_refuses_and_recovers(make_node: Callable[..., Node]) -> None:
    """FT-34: at the limit publications get 0x97; acknowledgements make room, and then they are taken again. The size stays
    bounded."""
    limit = 4 * 1024 * 1024
    node = make_node("journal", shards=1, max_journal_bytes=limit)
    sleeper = node.client("sleeper")
    sleeper.subscribe("fill/#", qos=1)
    sleeper.drop()
    speaker = node.client("speaker", clean=True, props={})
    taken = 0

    def is_refused() -> bool:
        nonlocal taken
        pid = speaker.start_publish("fill/x", b"x" * 50_000, qos=1)
        reason = speaker.expect(T.PUBACK, pid=pid).reason
        taken += reason < 0x80
        return reason == 0x97

    wait_for("a refusal", is_refused, 30)
    old = Client(HOST, node.port, V311, timeout=10)
    old.connect("old", clean=True)
    old.start_publish("fill/x", b"x", qos=1)
    old.read_until_closed()
    assert metric(node.http, "sedge_journal_full") == 1 and metric(node.http, "sedge_journal_refused_total") >= 2
    assert node.status()["journal"]["full"]  # type: ignore[index]
    node.kill()
    node.start()
    again = node.client("sleeper")
    for _ in range(taken):
        again.message()
    speaker = node.client("speaker", clean=True, props={})
    wait_for("room", lambda: not is_refused(), 30)
    size = sum(file.stat().st_size for file in node.data.glob("journal/*/*/*.log"))
    assert size < 2 * limit, size


def test_damage_is_found_said_and_costs_no_more_than_itself(make_node: Callable[..., Node]) -> None:
    """FT-29: a flipped bit in the middle of the journal: the node starts, names the damage that it has dropped, and has the rest."""
    node = make_node("fsync", shards=1)
    speaker = node.client("speaker", clean=True, props={})
    for number in range(20):
        speaker.publish(f"state/{number}", f"value-{number:02}", qos=1, retain=True)
    node.kill()
    segment, = node.data.glob("journal/*/*/*.log")
    content = bytearray(segment.read_bytes())
    content[content.index(b"value-07") + 3] ^= 0x10
    segment.write_bytes(content)
    node.start()
    reader = node.client("reader", clean=True, props={})
    reader.subscribe("state/#", qos=1)
    found = {reader.message().payload for _ in range(19)}
    assert found == {f"value-{number:02}".encode() for number in range(20) if number != 7}
    assert metric(node.http, "sedge_journal_recovery_dropped_bytes") > 0
    assert metric(node.http, "sedge_journal_recovery_missing_batches") == 1
    assert "damaged" in node.log.read_text()
    # A checkpoint leaves the damage behind.
    wait_for("a checkpoint", lambda: metric(node.http, "sedge_journal_checkpoints_total") >= 1)
    node.kill()
    node.start()
    assert metric(node.http, "sedge_journal_recovery_dropped_bytes") == 0


def test_the_journal_stays_small(make_node: Callable[..., Node]) -> None:
    """FT-34: hundreds of megabytes go through a queue that is emptied; the disk does not fill."""
    node = make_node("journal", shards=1, max_journal_bytes=8 * 1024 * 1024)
    reader = node.client("reader")
    reader.subscribe("flow/#", qos=1)
    speaker = node.client("speaker", clean=True, props={})
    for _ in range(60):
        pids = [speaker.start_publish("flow/x", b"x" * 100_000, qos=1) for _ in range(10)]
        for _ in pids:
            reader.message()
        assert [speaker.expect(T.PUBACK).reason for _ in pids] == [0] * 10
    assert metric(node.http, "sedge_journal_checkpoints_total") > 2
    assert sum(file.stat().st_size for file in node.data.glob("journal/*/*/*.log")) < 16 * 1024 * 1024


def test_the_disk_holds_about_three_times_what_is_alive(make_node: Callable[..., Node]) -> None:
    """FT-34: without a limit of its own a journal takes no more than three times the living data and two segments of 16 MiB,
    whatever passes through it, at every moment."""
    node = make_node("journal", shards=1)
    sleeper = node.client("sleeper")
    sleeper.subscribe("stays/#", qos=1)
    sleeper.drop()
    reader = node.client("reader")
    reader.subscribe("flow/#", qos=1)
    speaker = node.client("speaker", clean=True, props={})
    for _ in range(100):
        speaker.publish("stays/x", b"x" * 200_000, qos=1)
    most = 0
    for _ in range(75):
        pids = [speaker.start_publish("flow/x", b"x" * 200_000, qos=1) for _ in range(10)]
        for _ in pids:
            reader.message()
        assert [speaker.expect(T.PUBACK).reason for _ in pids] == [0] * 10
        most = max(most, sum(file.stat().st_size for file in node.data.glob("journal/*/*/*.log")))
    assert metric(node.http, "sedge_journal_checkpoints_total") >= 2
    assert most < 3 * 100 * 200_000 + 2 * 16 * 1024 * 1024, most
    print(f"\nat most {most / 20e6:.1f} times the 20 MB that are alive")


def test_a_journal_needs_a_directory(binary: Path, tmp_path: Path) -> None:
    """Asked for without one, the node does not start and says what is missing."""
    config = tmp_path / "bad.toml"
    config.write_text('[node]\ndurability = "fsync"\n')
    done = subprocess.run([str(binary), "serve", "-c", str(config)], capture_output=True, text=True, timeout=20)
    assert done.returncode == 2 and "node.durability" in done.stderr and "node.data_dir" in done.stderr
