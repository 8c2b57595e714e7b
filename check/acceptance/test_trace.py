"""Where publications go in a cluster, step by step, and why they do not arrive."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from client import Client
from cluster import HOST, Cluster, metric, wait_for
from mqttwire import V5

DAY = {"session_expiry_interval": 86_400}


def connected(cluster: Cluster, node: int, name: str, **options: object) -> Client:
    """A client of this node."""
    client = Client(HOST, cluster.ports()[node], V5, timeout=10)
    client.connect(name, **options)
    return client


class Trace:
    """A running `sedge trace`."""

    def __init__(self, cluster: Cluster, *flags: str, node: int = 2) -> None:
        self.cluster, self.topic = cluster, flags[flags.index("--topic") + 1]
        command = [str(cluster.binary), "trace", *flags, "--json", "--seconds", "60", "--api", f"http://{HOST}:{cluster.http + node}"]
        self.path = cluster.data.parent / f"trace-{time.monotonic_ns()}"
        self.out = open(self.path, "w")  # noqa: SIM115 (lives as long as the command)
        self.process = subprocess.Popen(command, stdout=self.out, stderr=subprocess.STDOUT)
        wait_for("it runs at all nodes", lambda: all(self.runs(at) for at in range(cluster.nodes)) or self.process.poll())
        assert self.process.poll() is None, self.path.read_text()

    def runs(self, node: int) -> bool:
        """Whether it runs at this node."""
        return any(one["topics"] == [self.topic] for one in self.cluster.api(node, "traces")["traces"])

    def notes(self) -> list[dict[str, Any]]:
        """The notes that `sedge trace` has printed."""
        return [json.loads(line) for line in self.path.read_text().splitlines() if line.startswith("{") and line.endswith("}")]

    def end(self) -> None:
        """Ctrl-C."""
        self.process.terminate()
        self.process.wait(10)
        self.out.close()
        wait_for("it has ended at all nodes", lambda: not any(self.runs(at) for at in range(self.cluster.nodes)))


@pytest.fixture
def trace() -> Iterator[Callable[..., Trace]]:
    """Traces of a test."""
    made: list[Trace] = []

    def make(*args: Any, **options: Any) -> Trace:
        made.append(Trace(*args, **options))
        return made[-1]

    yield make
    for one in made:
        if one.process.poll() is None:
            one.process.kill()
            one.process.wait(10)


def test_each_step_of_a_publication_is_told_from_all_nodes(cluster: Cluster, trace: Callable[..., Trace]) -> None:
    """OP-07: entry, routing, link, copy, session, sending and acknowledgements come in this order, at most a second behind, asked at a third node."""
    lamp = connected(cluster, 1, "lamp", props=DAY)
    lamp.subscribe("hall/+/light", qos=1)
    watcher = connected(cluster, 1, "not-followed", props=DAY)
    watcher.subscribe("attic/#", qos=1)
    running = trace(cluster, "--topic", "hall/#")
    switch = connected(cluster, 0, "switch", props=DAY)
    switch.publish("attic/x", "not followed", qos=1)
    published = time.time()
    switch.publish("hall/1/light", "on", qos=1)
    lamp.message("on", qos=1)

    def steps() -> dict[str, dict[str, Any]]:
        return {note["step"]: note for note in running.notes()}

    wanted = {"received", "routed", "came", "session", "sent", "copied", "acknowledged", "answered"}
    wait_for("all steps are told", lambda: wanted <= steps().keys(), 5)
    assert time.time() - published < 3, "a second, and what a loaded machine takes"
    found = steps()
    places = {step: found[step]["name"] for step in wanted}
    assert places == {"received": "node-1", "routed": "node-1", "answered": "node-1", "came": "node-2", "session": "node-2", "sent": "node-2", "copied": "node-2", "acknowledged": "node-2"}
    assert len({note["publication"] for note in running.notes()}) == 1 and {note["topic"] for note in running.notes()} == {"hall/1/light"}
    assert found["routed"]["nodes"] == ["node-2"] and found["came"]["nodes"] == ["node-1"]
    assert (found["received"]["client"], found["received"]["qos"], found["received"]["bytes"]) == ("switch", 1, 2)
    assert (found["session"]["client"], found["session"]["outcome"], found["session"]["filter"]) == ("lamp", "sent", "hall/+/light")
    times = [found[step]["at_us"] for step in ("received", "session", "sent", "acknowledged")]
    assert abs(times[0] / 1e6 - published) < 5 and times[1] <= times[2] <= times[3], times
    running.end()
    wait_for("nothing is kept", lambda: metric(cluster.http, "sedge_traces") == 0)


def test_what_does_not_arrive_is_told_with_its_reason(make_cluster: Callable[..., Cluster], trace: Callable[..., Trace], monkeypatch: pytest.MonkeyPatch) -> None:
    """OP-07: a client that gets no publication has a note that says why, whatever the cause and wherever the session is."""
    monkeypatch.setenv("SEDGE_LIMITS__MAX_QUEUED_MESSAGES", "1")
    cluster = make_cluster(3)
    lamp = connected(cluster, 1, "lamp", props={**DAY, "maximum_packet_size": 1_000})
    lamp.subscribe(("hall/+/light", 0x05))  # QoS 1, No Local
    lamp.subscribe("$share/turns/shared/x", qos=1)
    other = connected(cluster, 1, "other-member", props=DAY)
    other.subscribe("$share/turns/shared/x", qos=1)
    running = trace(cluster, "--client", "lamp", "--topic", "#")
    switch = connected(cluster, 0, "switch", props=DAY)

    def causes() -> dict[str, str]:
        return {note["topic"]: note["cause"] for note in running.notes()
                if note["step"] in ("session", "explained", "dropped") and note["client"] == "lamp" and note.get("outcome", "not") == "not"}

    switch.publish("hall/1/heat", "other level", qos=1)
    switch.publish("Hall/1/light", "letter case", qos=1)
    switch.publish("hall/2/light", "x" * 2_000, qos=1)
    lamp.publish("hall/3/light", "my own", qos=1)
    for _ in range(10):
        switch.publish("shared/x", "for one of two", qos=1)
    wait_for("the reasons are told", lambda: causes().keys() >= {"hall/1/heat", "Hall/1/light", "hall/2/light", "hall/3/light", "shared/x"}, 15)
    assert causes() == {"hall/1/heat": "other_level", "Hall/1/light": "letter_case", "hall/2/light": "packet_too_large", "hall/3/light": "no_local", "shared/x": "shared_elsewhere"}
    lamp.close()
    wait_for("the lamp is away", lambda: not cluster.api(1, "sessions?client=lamp")["sessions"][0]["connected"])
    switch.publish("hall/4/light", "nobody waits for QoS 0", qos=0)
    switch.publish("hall/5/light", "it waits", qos=1)
    switch.publish("hall/6/light", "there is no room", qos=1)
    wait_for("these, too", lambda: causes().keys() >= {"hall/4/light", "hall/6/light"}, 15)
    assert (causes()["hall/4/light"], causes()["hall/6/light"]) == ("offline_qos0", "queue_full")
    assert any(note["step"] == "session" and note["topic"] == "hall/5/light" and note["outcome"] == "waits" for note in running.notes())
    back = connected(cluster, 2, "lamp", clean=False, props=DAY)
    while back.message().payload != b"it waits":
        pass  # what it had not acknowledged before
    wait_for("what had waited is sent, and acknowledged at the other node",
             lambda: [(note["name"], note["step"]) for note in running.notes() if note["topic"] == "hall/5/light"][-2:] == [("node-3", "sent"), ("node-3", "acknowledged")], 15)
    running.end()


def test_more_reasons_are_told(make_cluster: Callable[..., Cluster], trace: Callable[..., Trace], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """OP-07: access rules, topics that nearly match, refused publications, expired and crowded-out messages."""
    (tmp_path / "acl").write_text("topic readwrite #\ntopic readwrite $x/#\nclient lamp\ntopic deny gold/vault\nclient guest\ntopic deny hall/1/light\n")
    for key, value in {"ACL__FILE": str(tmp_path / "acl"), "LIMITS__MAX_TOPIC_LEVELS": "6", "LIMITS__MAX_QUEUED_BYTES": "4KiB"}.items():
        monkeypatch.setenv(f"SEDGE_{key}", value)
    cluster = make_cluster(3)
    lamp = connected(cluster, 1, "lamp", props=DAY)
    lamp.subscribe("hall/+/light", "cellar/pump/state", "/attic/fan", "+/vault", qos=1)
    running, below_dollar = trace(cluster, "--client", "lamp", "--topic", "#"), trace(cluster, "--client", "lamp", "--topic", "$x/#")
    switch, guest = connected(cluster, 0, "switch", props=DAY), connected(cluster, 2, "guest", props=DAY)

    def causes(of: Trace) -> set[tuple[str, str]]:
        told = (note for note in of.notes() if note["step"] in ("session", "explained", "dropped") and note["client"] == "lamp" and note.get("outcome", "not") == "not")
        return {(note["topic"], note["cause"]) for note in told}

    unheard = {"garden/door": "no_match", "cellar/pump": "too_few_levels", "cellar/pump/state/last": "too_many_levels", "attic/fan": "slash", "gold/vault": "not_authorized"}
    for topic in (*unheard, "$x/vault"):
        switch.publish(topic, "nobody hears it", qos=1)
    guest.publish("hall/1/light", "not from you", qos=1, allowed=(0x87,))
    guest.publish("a/b/c/d/e/f/g", "too deep", qos=1, allowed=(0x90,))
    wait_for("the reasons are told", lambda: len(causes(running)) >= len(unheard) and causes(below_dollar), 15)
    assert causes(running) == set(unheard.items()) and causes(below_dollar) == {("$x/vault", "dollar")}
    refused = {note["topic"]: note["detail"] for note in running.notes() if note["step"] == "refused" and note["client"] == "guest" and note["name"] == "node-3"}
    assert "line 6 of acl.file" in refused["hall/1/light"] and "limits.max_topic_levels" in refused["a/b/c/d/e/f/g"], refused
    lamp.drop()
    wait_for("the lamp is away", lambda: not cluster.api(1, "sessions?client=lamp")["sessions"][0]["connected"])
    switch.publish("hall/2/light", "soon too old", qos=1, props={"message_expiry_interval": 1})
    for number in range(3):
        switch.publish(f"hall/{number + 3}/light", "x" * 1_900, qos=1)
    wait_for("the last has no room", lambda: ("hall/5/light", "queue_bytes_full") in causes(running), 15)
    switch.rest(1.5)  # its message expiry
    connected(cluster, 1, "lamp", clean=False, props=DAY)
    wait_for("the first is too old", lambda: ("hall/2/light", "expired") in causes(running), 15)
    for one in (running, below_dollar):
        one.end()


def test_traces_are_bounded(cluster: Cluster, trace: Callable[..., Trace]) -> None:
    """OP-07: no more than eight run at once; notes beyond those that a node keeps are counted as dropped; a text says what is followed."""
    traces = [trace(cluster, "--topic", f"bounded/{number}", "--one-in", "2") for number in range(8)]
    command = [str(cluster.binary), "trace", "--topic", "x", "--api", f"http://{HOST}:{cluster.http}"]
    refused = subprocess.run(command, capture_output=True, text=True, check=False, timeout=20)
    assert refused.returncode == 1 and "8 traces run" in refused.stderr, refused
    assert metric(cluster.http, "sedge_traces") == 8 and metric(cluster.http, "sedge_traces_refused_total") == 1
    for one in traces:
        one.process.terminate()
        one.process.wait(10)
    wait_for("all have ended", lambda: not any(cluster.api(at, "traces")["traces"] for at in range(3)))
    nothing = subprocess.run([str(cluster.binary), "trace"], capture_output=True, text=True, check=False, timeout=20)
    assert nothing.returncode == 2 and "--topic" in nothing.stderr
    wrong = subprocess.run([*command[:3], "a/#/b", *command[4:]], capture_output=True, text=True, check=False, timeout=20)
    assert wrong.returncode == 1 and "a/#/b" in wrong.stderr
