"""Journals whose files are gone, cut short or on a disk without room when their node starts."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from cluster import metric, wait_for
from durable import Node
from test_disk import answer_to, small_disk  # noqa: F401


def filled(make_node: Callable[..., Node], durability: str = "journal") -> Node:
    """A node of two shards that was killed when it had twenty retained messages and a session with a queue."""
    node = make_node(durability, shards=2)
    sleepers = [node.client(f"sleeper-{number}") for number in range(4)]
    for sleeper in sleepers:
        sleeper.subscribe("queue", qos=1)
        sleeper.drop()
    speaker = node.client("speaker", clean=True, props={})
    for number in range(20):
        speaker.publish(f"state/{number}", f"value-{number:02}", qos=1, retain=True)
        speaker.publish("queue", str(number), qos=1)
    node.kill()
    return node


def refusal(node: Node) -> str:
    """The node's log when it does not start."""
    before = sorted(path for path in node.data.rglob("*") if path.name.endswith(".log"))
    node.log.write_text("")
    with pytest.raises(AssertionError):
        node.start()
    assert sorted(path for path in node.data.rglob("*") if path.name.endswith(".log")) == before, "something was removed"
    return node.log.read_text()


def has_all(node: Node) -> None:
    """Everything is there."""
    reader = node.client("reader", clean=True, props={})
    reader.subscribe("state/#", qos=1)
    assert len({reader.message().payload for _ in range(20)}) == 20
    for number in range(4):
        sleeper = node.client(f"sleeper-{number}")
        assert [int(sleeper.message().payload) for _ in range(20)] == list(range(20))


def test_a_journal_that_nothing_names_is_refused_and_not_removed(make_node: Callable[..., Node]) -> None:
    """FT-29: `current` is missing, or names another generation: the node does not start, removes nothing, and says what to do; what
    it says helps."""
    node = filled(make_node)
    current = node.data / "journal" / "current"
    text = current.read_text()
    current.write_text(text.replace("generation 1", "generation 2"))
    said = refusal(node)
    assert "generation 2" in said and "what is there is 1" in said
    current.unlink()
    said = refusal(node)
    command = re.search(r"(echo '[^']+' > \S+/current)", said)
    assert command, said
    subprocess.run(["sh", "-c", command[1]], check=True)
    node.start()
    has_all(node)
    node.kill()
    # All of it is gone, but for the file that names it.
    shutil.rmtree(node.data / "journal" / "1")
    assert "there is none" in refusal(node)


@pytest.mark.parametrize("what", ["segment", "shard", "end"])
def test_what_is_missing_is_named_and_counted(make_node: Callable[..., Node], what: str) -> None:
    """FT-29: a segment or a shard's directory is gone, or a file was cut to two thirds: the node starts with the rest, and names
    and counts what is missing in the log, the status and a metric."""
    node = filled(make_node)
    generation = node.data / "journal" / "1"
    place = generation / "shard-1"
    segment = next(place.glob("*.log"))
    if what == "segment":
        segment.unlink()
    elif what == "shard":
        shutil.rmtree(place)
    else:
        segment.write_bytes(segment.read_bytes()[:segment.stat().st_size * 2 // 3])
    node.start()
    recovery = node.status()["journal"]["recovery"]  # type: ignore[index]
    assert recovery["missing_batches"] > 0
    assert recovery["missing_segments"] == (what != "end")
    assert recovery["missing_shards"] == (what == "shard")
    name = str(place if what == "shard" else segment)
    assert any(hole.startswith(name) for hole in recovery["holes"]), recovery
    log = node.log.read_text()
    assert all(hole in log for hole in recovery["holes"]) and "unfinished write" not in log
    for key in ("missing_batches", "missing_segments", "missing_shards"):
        assert metric(node.http, f"sedge_journal_recovery_{key}") == recovery[key]
    # The retained messages are those of shard 0.
    reader = node.client("reader", clean=True, props={})
    reader.subscribe("state/#", qos=1)
    assert len({reader.message().payload for _ in range(20)}) == 20
    wait_for("a checkpoint", lambda: metric(node.http, "sedge_journal_checkpoints_total", shard="1") >= 1)
    node.kill()
    node.start()
    assert metric(node.http, "sedge_journal_recovery_missing_batches") == 0


def test_an_orderly_end_and_a_kill_leave_nothing_to_miss(make_node: Callable[..., Node]) -> None:
    """FT-29: no start after an orderly end or a kill misses anything."""
    node = filled(make_node, "fsync")
    for end in (node.stop, node.kill, node.stop):
        node.start()
        recovery = node.status()["journal"]["recovery"]  # type: ignore[index]
        assert not recovery["holes"] and not recovery["missing_batches"], recovery
        end()


def test_a_journal_of_the_first_format_is_read(make_node: Callable[..., Node]) -> None:
    """FT-29: a journal without listings, as the first format has it, goes on, and has them afterwards."""
    node = filled(make_node)
    (node.data / "journal" / "current").write_text("1 2\n")
    for listing in node.data.glob("journal/1/*.segments"):
        listing.unlink()
    node.start()
    has_all(node)
    assert not node.status()["journal"]["recovery"]["holes"]  # type: ignore[index]
    assert len(list(node.data.glob("journal/1/*.segments"))) == 2
    assert (node.data / "journal" / "current").read_text().startswith("sedge-journal 2 ")


@pytest.mark.parametrize("durability", ["journal", "fsync"])
def test_a_node_starts_on_a_full_disk(make_node: Callable[..., Node], small_disk: Path, durability: str) -> None:  # noqa: F811
    """FT-34: a node whose disk has no byte left starts again: it serves its data, takes QoS 0, refuses QoS 1 and 2 with 0x97, and
    takes them when there is room. It is a later life of itself each time."""
    node = make_node(durability, shards=2, data=small_disk / "data")
    speaker = node.client("speaker", clean=True, props={})
    for number in range(20):
        speaker.publish(f"state/{number}", f"value-{number:02}", qos=1, retain=True)
    lives = [node.status()["incarnation"]]
    for end in (node.kill, node.stop):
        end()
        ballast = small_disk / "ballast"
        with open(ballast, "ab", buffering=0) as file:
            for size in (1024 * 1024, 4096, 1):
                try:
                    while True:
                        file.write(b"b" * size)
                except OSError:
                    pass
        with pytest.raises(OSError):
            (small_disk / "one-byte-more").write_bytes(b"x")
        (small_disk / "one-byte-more").unlink()
        node.start()
        lives.append(node.status()["incarnation"])
        wait_for("it knows that the disk is full", lambda: metric(node.http, "sedge_journal_full", shard="0") == 1)
        speaker = node.client("speaker", clean=True, props={})
        speaker.subscribe("state/#", qos=0)
        assert len({speaker.message().payload for _ in range(20)}) == 20
        speaker.publish("state/light", "qos 0", qos=0)
        assert speaker.message().payload == b"qos 0"
        assert [answer_to(speaker, qos) for qos in (1, 2)] == [0x97, 0x97]
    assert lives == sorted(set(lives))
    ballast.unlink()
    late = node.client("late", clean=True, props={})
    # Nobody has subscribed to it.
    wait_for("there is room", lambda: [answer_to(late, qos) for qos in (1, 2)] == [0x10, 0x10])
