"""The tree of topics in the dashboard and the API: level by level, with 100,000 topics."""

from __future__ import annotations

import contextlib
import json
import os
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from client import Client
from cluster import HOST, wait_for
from mqttwire import V5, publish
from test_dashboard import Browser, Cluster3, pytestmark

__all__ = ["pytestmark"]
HALLS = int(os.environ.get("SEDGE_TREE_HALLS", "500"))
SENSORS = 200
LONG = "x" * 100_000 + " the end"


@pytest.fixture(scope="module")
def site(binary: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster3]:
    """Three nodes with 100,000 retained topics, and a long one."""
    running = Cluster3(binary, tmp_path_factory.mktemp("topics") / "data")
    try:
        with contextlib.closing(Client(HOST, running.port, V5, timeout=60)) as filler:
            filler.connect("filler")
            for hall in range(HALLS):
                said = ((f"plant/hall-{hall:03}/sensor-{sensor:04}", f"value {sensor} of {hall}".encode()) for sensor in range(SENSORS))
                filler.send(b"".join(publish(V5, topic, text, qos=0, retain=True, dup=False, pid=0, props=None) for topic, text in said))
            filler.publish("live/long", LONG.encode(), qos=1, retain=True)
        wait_for("all nodes have them", lambda: all(running.status(node)["retained"] > HALLS * SENSORS for node in range(3)), 120)
        yield running
    finally:
        running.stop()


def level(site: Cluster3, node: int, below: str, **more: object) -> dict[str, Any]:
    """A page of a level."""
    return dict(site.api(node, "topics?" + urllib.parse.urlencode({"below": below, "node": "*", **more})))


def value(site: Cluster3, node: int, topic: str) -> bytes:
    """The last value of a topic."""
    with urllib.request.urlopen(f"{site.url(node)}/api/v1/topics/value?" + urllib.parse.urlencode({"topic": topic, "node": "*"}), timeout=10) as answer:
        assert answer.headers["Content-Type"] == "application/octet-stream"
        return bytes(answer.read())


def test_a_level_is_listed_page_by_page(site: Cluster3) -> None:
    """OP-02: pages together are the level, each is bounded, and comes at once however many topics there are."""
    root = level(site, 1, "")
    assert [(line["name"], line["below"], line["more"]) for line in root["lines"]] == [("live", True, False), ("plant", True, True)], root
    names: list[str] = []
    after: dict[str, object] = {}
    slowest = 0.0
    while True:
        began = time.monotonic()
        page = level(site, 2, "plant/", limit=200, **after)
        slowest = max(slowest, time.monotonic() - began)
        assert len(page["lines"]) <= 200
        names += [line["name"] for line in page["lines"]]
        if page["next"] is None:
            break
        after = {"after": page["next"]}
    assert names == [f"hall-{hall:03}" for hall in range(HALLS)]
    # All of it: three nodes, their answers, and a build that may be one for debugging.
    assert slowest < 1.0, f"a page took {slowest:.3f} s"
    assert value(site, 1, "live/long") == LONG.encode()
    for wrong, what in (("topics?below=plant", "does not end with /"), ("topics?limit=201", "between 1 and 200"), ("topics/value?topic=%2B", "topic")):
        with pytest.raises(urllib.error.HTTPError) as refused:
            site.api(0, wrong)
        assert refused.value.code == 400 and what in json.loads(refused.value.read())["detail"]
    with pytest.raises(urllib.error.HTTPError) as unknown:
        value(site, 0, "plant/nobody")
    assert unknown.value.code == 404


def test_what_clients_publish_is_known_while_somebody_looks(site: Cluster3) -> None:
    """OP-02: topics and values of another node, from any node; long values only by their length; both counted in the metrics."""
    level(site, 0, "seen/")
    with contextlib.closing(Client(HOST, site.port + 2, V5, timeout=20)) as speaker:
        speaker.connect("seen-speaker")
        speaker.publish("seen/a", b"\xff\x00", qos=1)
        speaker.publish("seen/a/b", b"text", qos=1)
        speaker.publish("seen/long", b"x" * 20_000, qos=1)
        found = wait_for("it is known at another node", lambda: level(site, 0, "seen/")["lines"][2:] and level(site, 0, "seen/"))
        lines = {line["name"] + "/" * line["below"]: line for line in found["lines"]}
        assert list(lines) == ["a", "a/", "long"]
        assert (lines["a"]["preview"], lines["a"]["publisher"], lines["a"]["qos"], lines["a"]["retained"]) == (None, "seen-speaker", 1, False)
        assert lines["a"]["rate"] > 0 and lines["long"]["bytes"] == 20_000
        assert value(site, 1, "seen/a") == b"\xff\x00" and value(site, 0, "seen/a/b") == b"text"
        with pytest.raises(urllib.error.HTTPError) as too_long:
            value(site, 0, "seen/long")
        assert "too long to be kept" in too_long.value.read().decode()
        speaker.publish("plant/hall-000/sensor-0001", b"newer, not retained", qos=1)
        wait_for("the newer value is told", lambda: value(site, 0, "plant/hall-000/sensor-0001") == b"newer, not retained")
    assert site.metric(2, "sedge_watched_topics") >= 4
    assert 4 * 192 < site.metric(2, "sedge_watched_topics_bytes") < 10_000


def test_the_page_shows_the_tree(site: Cluster3) -> None:
    """OP-02: by keyboard and mouse, wide and narrow, retained and live, a long value in full; no violation of axe."""
    browser = Browser("topics", site.url(), ws=site.ws)
    browser.until("looking")
    ended = threading.Event()

    def speak() -> None:
        with contextlib.closing(Client(HOST, site.port + 1, V5, timeout=20)) as speaker:
            speaker.connect("live-speaker")
            while not ended.wait(0.1):
                speaker.publish("live/line", b"said by another node", qos=1)

    thread = threading.Thread(target=speak)
    thread.start()
    try:
        browser.go_on()
        browser.finish()
    finally:
        ended.set()
        thread.join(10)
