"""`sedge top`: the figures of all nodes on a page of a terminal and as text."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import select
import signal
import socket
import struct
import subprocess
import termios
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from client import Client
from cluster import HOST, Cluster, metric, wait_for
from mqttwire import V5

ENTER, LEAVE, SHOW_CURSOR = b"\x1b[?1049h", b"\x1b[?1049l", b"\x1b[?25h"


def run(cluster: Cluster, *words: str, node: int = 0) -> subprocess.CompletedProcess[str]:
    """`sedge top` without a terminal."""
    command = [str(cluster.binary), "top", *words, "--api", f"http://{HOST}:{cluster.http + node}"]
    return subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=30, check=False)


class Screen:
    """`sedge top` on a terminal of 40 rows and 100 columns."""

    def __init__(self, cluster: Cluster, *words: str) -> None:
        self.main, side = pty.openpty()
        fcntl.ioctl(side, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 100, 0, 0))
        self.before = termios.tcgetattr(side)
        command = [str(cluster.binary), "top", "--every", "1", *words, "--api", f"http://{HOST}:{cluster.http}"]
        self.process = subprocess.Popen(command, stdin=side, stdout=side, stderr=side, start_new_session=True)
        self.side, self.drawn = side, b""

    def read(self) -> bytes:
        """All that was drawn so far."""
        while select.select([self.main], [], [], 0)[0]:
            self.drawn += os.read(self.main, 65_536)
        return self.drawn

    def type(self, keys: bytes) -> None:
        """Presses keys."""
        os.write(self.main, keys)

    def ends(self) -> int:
        """Its exit code; the terminal is as it was."""
        wait_for("it ends", lambda: self.read() and self.process.poll() is not None)
        assert termios.tcgetattr(self.side) == self.before, "the terminal is in another mode than before"
        drawn = self.read()
        assert drawn.rindex(LEAVE) > drawn.rindex(ENTER) and drawn.rindex(SHOW_CURSOR) > drawn.rindex(ENTER), drawn[-200:]
        return self.process.wait(10)

    def close(self) -> None:
        """Ends it if it is still there."""
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait(10)
        os.close(self.main)
        os.close(self.side)


@contextmanager
def screen(cluster: Cluster, *words: str) -> Iterator[Screen]:
    """A page on a terminal."""
    made = Screen(cluster, *words)
    try:
        yield made
    finally:
        made.close()


@contextmanager
def traffic(cluster: Cluster, topics: dict[str, int]) -> Iterator[None]:
    """At node 0 somebody publishes each topic so often in a tenth of a second; at node 2 a subscriber reads nothing."""
    slow = Client(HOST, cluster.ports()[2], V5, timeout=10)
    slow.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
    slow.connect("slow\x7fpoke", props={"receive_maximum": 1})
    slow.subscribe("busy/#", qos=1)
    publisher = Client(HOST, cluster.ports()[0], V5, timeout=10)
    publisher.connect("busy")
    ended = threading.Event()

    def publish() -> None:
        while not ended.wait(0.1):
            for topic, times in topics.items():
                for _ in range(times):
                    publisher.publish(topic, "x", qos=1)

    thread = threading.Thread(target=publish)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join(10)
        publisher.disconnect()
        slow.close()


def told(cluster: Cluster, *words: str, node: int = 0) -> dict[str, Any]:
    """A page as a value."""
    done = run(cluster, "--json", "--every", "1", *words, node=node)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_one_page_says_what_all_nodes_do(cluster: Cluster) -> None:
    """OP-02: rates, processor, memory and queue of each node, the slow subscriber and the busiest topics, from a node that has neither."""
    with traffic(cluster, {"busy/hot\x7f": 6, "busy/b": 2}):
        def all_there() -> dict[str, Any] | None:
            page = told(cluster, node=1)
            known = page["slow_subscribers"] and len(page["hot_topics"]) == 2 and page["nodes"][0]["messages_in"] > 0
            return page if known else None

        page = wait_for("the page is complete", all_there, 30)
        assert [node["name"] for node in page["nodes"]] == ["node-1", "node-2", "node-3"]
        assert all(node["cpu_percent"] >= 0 and node["memory_bytes"] > 1_000_000 and not node["is_away"] for node in page["nodes"])
        assert page["nodes"][2]["queued"] > 0 and page["nodes"][1]["messages_in"] == 0
        slow = page["slow_subscribers"][0]
        assert (slow["client"], slow["node"], slow["inflight"]) == ("slow\x7fpoke", "node-3", 1) and slow["queued"] > 0
        hot, other = page["hot_topics"]
        assert (hot["topic"], other["topic"]) == ("busy/hot\x7f", "busy/b") and hot["messages"] > 2 * other["messages"], page
        assert metric(cluster.http, "sedge_hot_topics_bytes") > 0
        text = run(cluster, "--once", "--every", "1", "--sort", "queue").stdout
        nodes = [line.split()[0] for line in text.splitlines() if line.startswith("node-")]
        assert nodes[0] == "node-3" and "busy/hot\\x7f" in text and "slow\\x7fpoke" in text and "\x7f" not in text, text
    reverse = told(cluster, "--sort", "name", "--reverse")
    assert [node["name"] for node in reverse["nodes"]] == ["node-3", "node-2", "node-1"]
    assert cluster.api(0, "topics/hot?limit=1")["topics"][0]["topic"] == "busy/hot\x7f"
    assert "between 1 and 100" in run_raw(cluster, "topics/hot?limit=101")
    names = cluster.api(0, "topics/hot?node=node-2&limit=1")
    assert names["topics"] == []


def run_raw(cluster: Cluster, path: str) -> str:
    """The API's answer, errors too."""
    done = subprocess.run(["curl", "-s", f"http://{HOST}:{cluster.http}/api/v1/{path}"], capture_output=True, text=True, timeout=20, check=True)
    return done.stdout


def test_without_a_terminal_it_says_so(cluster: Cluster) -> None:
    """OP-09: a usage error that names the way out."""
    done = run(cluster)
    assert (done.returncode, done.stdout) == (2, "") and "--once" in done.stderr, done.stderr


def test_a_page_on_a_terminal_obeys_keys_and_leaves_the_terminal_as_it_was(cluster: Cluster) -> None:
    """OP-02: drawn at once, sorted by keys, ended by q, Ctrl-C and SIGTERM."""
    with screen(cluster) as page:
        wait_for("the page is there", lambda: all(part in page.read() for part in (b"node-1", b"node-3", b"SLOW SUBSCRIBER", b"quit")))
        page.type(b"u")
        # Only cells that change are drawn: the arrow of a number points down, that of names up.
        wait_for("it is sorted by queue", lambda: "↓".encode() in page.read())
        page.type(b" ")
        wait_for("it pauses", lambda: b"paused" in page.read())
        page.type(b"q")
        assert page.ends() == 0
    with screen(cluster) as page:
        wait_for("the page is there", lambda: b"node-1" in page.read())
        page.type(b"\x03")
        assert page.ends() == 0
    with screen(cluster) as page:
        wait_for("the page is there", lambda: b"node-1" in page.read())
        page.process.send_signal(signal.SIGTERM)
        assert page.ends() == 0


def test_nodes_that_are_away_stay_on_the_page(cluster: Cluster) -> None:
    """OP-02: a killed node is shown as dead; when the node that is asked is gone the page says so and goes on. The last test: it kills nodes."""
    with screen(cluster) as page:
        wait_for("the page is there", lambda: b"node-3" in page.read())
        cluster.kill(2)
        wait_for("the death is shown", lambda: b"dead for" in page.read(), 20)
        cluster.kill(0)
        wait_for("the page says that nobody answers", lambda: b"cannot reach the API" in page.read(), 20)
        assert page.process.poll() is None
        page.type(b"q")
        assert page.ends() == 0
    started = time.monotonic()
    done = run(cluster)
    assert done.returncode == 2 and time.monotonic() - started < 20
    away = told(cluster, node=1)
    assert [(node["name"], node["is_away"]) for node in away["nodes"] if node["name"] == "node-3"] == [("node-3", True)]
