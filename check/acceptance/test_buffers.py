"""Full buffers of bridges: publishers are refused, nothing that was acknowledged is lost, and it goes on by itself."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

from client import Client
from cluster import HOST, metric, wait_for
from durable import Node
from mqttwire import V311, T
from remote import Collector, Remote
from test_bridging import bridge, remote, runs, state  # noqa: F401 (fixtures)

DEADLINE = 60.0
BUFFER = {"max_bytes": "64KiB", "full": "refuse"}
PAYLOAD = 1000

# As the documentation of bridges says it.
EXAMPLE = """\
[bridge.plant-to-kafka]
kind = "kafka"                           # or "mqtt"
address = ["kafka-1:9092"]
from = ["plant/+/temperature", "alarm/#"]
topic = "plant"                          # Kafka topic or MQTT prefix; templates from topic levels: "plant-{1}"
key = "topic"                            # or "client", or a JSON field
ack = "buffer"                           # publishers are acknowledged when the buffer has it on `copies` nodes
buffer = { max_bytes = "2GiB", full = "refuse" }      # "drop-oldest", "drop-qos0"
rule = "mean-10s"

[bridge.commands]
kind = "kafka"                           # the way down
direction = "in"
from = ["commands"]
topic = "{key}"

[rule.mean-10s]
where = "payload.value > 0"
group_by = ["topic"]
window = { tumbling = "10s" }            # hopping, session, count; event or arrival time, lateness
select = { value = "mean(payload.value)", n = "count()" }
"""


def section(**settings: object) -> str:
    """The inline table of a buffer."""
    return "{ " + ", ".join(f'{key} = "{value}"' for key, value in settings.items()) + " }"


def refusing(remote: Remote) -> str:  # noqa: F811
    """A bridge whose small buffer refuses."""
    return bridge(remote) + f"buffer = {section(**BUFFER)}\n"


def fill(client: Client, sent: list[str]) -> None:
    """Publishes, 1000 bytes a message, until a publication is refused; adds the acknowledged ones."""
    for _ in range(5000):
        text = f"{len(sent):0{PAYLOAD}}"
        pid = client.start_publish("up/load", text, qos=1)
        reason = client.expect(T.PUBACK, pid=pid).reason
        if reason >= 0x80:
            assert reason == 0x97, hex(reason)
            return
        sent.append(text)
    raise AssertionError("nothing was refused")


def is_taken(client: Client, sent: list[str]) -> bool:
    """Whether the next publication is taken."""
    text = f"{len(sent):0{PAYLOAD}}"
    pid = client.start_publish("up/load", text, qos=1)
    taken = client.expect(T.PUBACK, pid=pid).reason < 0x80
    sent.extend([text] if taken else [])
    return taken


def test_a_full_buffer_refuses_publishers_at_every_node_until_there_is_room(
    make_site: Callable[..., list[Node]], remote: Remote  # noqa: F811
) -> None:
    """DP-03, MQ-18: 5.0 clients are told 0x97, 3.1.1 clients wait, other topics go on, and acknowledged messages arrive in order."""
    nodes = make_site(refusing(remote), 3)
    told = lambda: sorted(state(node)["state"] for node in nodes) == ["elsewhere", "elsewhere", "running"]  # noqa: E731
    wait_for("one runs the bridge, and the others know", told, DEADLINE)
    runner = next(node for node in nodes if runs(node))
    other, third = (node for node in nodes if node is not runner)
    far = Collector(remote.port, "up/#")
    remote.signal(signal.SIGSTOP)
    sent: list[str] = []
    modern = other.client("modern", clean=True)
    fill(modern, sent)
    assert len(sent) >= 60, "the buffer has room for more than 60 messages"
    here = runner.client("here", clean=True)
    wait_for("it is refused at the bridge's own node, too", lambda: not is_taken(here, sent), DEADLINE)
    away = third.client("away", clean=True)
    wait_for("and at the third one", lambda: not is_taken(away, sent), DEADLINE)
    here.publish("elsewhere", "goes on", qos=1)
    modern.publish("elsewhere", "goes on", qos=2)
    older = third.client("older", V311)
    pid = older.start_publish("up/old", "old", qos=1)
    older.ping()
    assert not any(one.type == T.PUBACK for one in older.inbox), "3.1.1 has no word for a refusal"
    remote.signal(signal.SIGCONT)
    older.expect(T.PUBACK, timeout=DEADLINE, pid=pid)
    wait_for("there is room again", lambda: is_taken(modern, sent), DEADLINE)
    wait_for("everything is there", lambda: {*sent, "old"} <= set(far.payloads), DEADLINE)
    far.stop()
    assert [one for one in dict.fromkeys(far.payloads) if one != "old"] == sent, "in order, and nothing that was refused"
    assert sum(metric(node.http, "sedge_journal_refused_total") for node in nodes) >= 2


def test_the_example_of_the_documentation_is_a_configuration(binary: Path, tmp_path: Path) -> None:
    """DP-01: the example is taken as it is; a field that is wrong is named with its line and with what to write."""
    file = tmp_path / "sedge.toml"
    file.write_text(EXAMPLE)
    done = subprocess.run([str(binary), "config", "check", "-c", str(file)], capture_output=True, text=True, timeout=20, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    for right, wrong, line, fix in (
        ('full = "refuse"', 'full = "wait"', 8, "drop-oldest"), ('topic = "plant" ', 'topic = "x-{7}"', 5, "lower number"),
        ('tumbling = "10s"', 'tumbling = "0s"', 20, "not between"), ("ack =", "akc =", 7, "ack")):
        assert right in EXAMPLE
        file.write_text(EXAMPLE.replace(right, wrong, 1))
        done = subprocess.run([str(binary), "config", "check", "-c", str(file)], capture_output=True, text=True, timeout=20, check=False)
        said = done.stdout + done.stderr
        assert done.returncode != 0 and f"sedge.toml:{line}" in said and fix in said, (wrong, said)
