"""Bridges of Sedge to Kafka and from it: a real Kafka. Run by `./test kafka`, which builds a program that has them."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import kafka
import pytest
from cluster import HOST, metric, wait_for
from durable import Node
from kafka import Kafka
from mqttwire import T
from pki import authority, sign
from remote import Load
from test_bridging import all_know, runs, state, the_runner  # noqa: F401 (a fixture)
from test_remote_acks import is_not_answered

pytestmark = pytest.mark.skipif(not kafka.JARS, reason="SEDGE_KAFKA names no folder with Kafka; ./test kafka makes one")
DEADLINE = 90.0
# Whether the program has TLS to Kafka.
TLS = bool(os.environ.get("SEDGE_KAFKA_TLS"))


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kafka]:
    """The Kafka of all tests here; each has topics of its own."""
    running = Kafka(tmp_path_factory.mktemp("kafka")).start()
    yield running
    running.stop()


def bridge(broker: Kafka, **settings: object) -> str:
    """A section for one bridge."""
    lines = {"kind": "kafka", "address": [f"{HOST}:{broker.port}"], "reconnect_max": "500ms", **settings}
    return "[bridge.cloud]\n" + "".join(f"{key} = {json.dumps(value)}\n" for key, value in lines.items())


def check(records: list[tuple[dict[str, str], str, str]], sent: list[str]) -> int:
    """Nothing is missing, in order, and messages that came twice have the same identity; returns how many did."""
    values = [value for _, _, value in records]
    missing = set(sent) - set(values)
    assert not missing, f"{len(missing)} of {len(sent)} lost: {sorted(missing, key=int)[:10]}"
    wanted = set(sent)
    assert [one for one in dict.fromkeys(values) if one in wanted] == sent, "out of order"
    identities: dict[str, str] = {}
    for headers, _, value in records:
        assert identities.setdefault(value, headers["sedge-id"]) == headers["sedge-id"], value
    return len(values) - len(set(values))


def test_messages_appear_with_key_and_headers(make_site: Callable[..., list[Node]], broker: Kafka) -> None:  # noqa: F811
    """DP-01, DP-02: key and name from the topic; MQTT's fields beside the payload are in headers; nothing else leaves."""
    (node,) = make_site(bridge(broker, **{"from": ["plant/+/temperature", "alarm/#"]}, topic="one-{0}"))
    wait_for("the bridge runs", lambda: runs(node), DEADLINE)
    near = node.client("near", clean=True)
    for qos in range(3):
        near.publish("plant/7/temperature", f"{qos}", qos=qos, props={"user_property": [("unit", "C")]})
    near.publish("plant/7/pressure", "not selected", qos=1)
    near.publish("alarm/fire", "!", qos=1, retain=True)
    wait_for("Kafka has them", lambda: metric(node.http, "sedge_bridge_messages_out_total") == 4, DEADLINE)
    records = broker.consume("one-plant")
    assert [(key, value) for _, key, value in records] == [("plant/7/temperature", str(qos)) for qos in range(3)]
    for qos, (headers, _, _) in enumerate(records):
        assert (headers["mqtt-qos"], headers["mqtt-retain"], headers["unit"]) == (str(qos), "0", "C")
        assert headers["sedge-client"] == "near" and len(headers["sedge-id"].split("/")) == 4
    (headers, key, value), = broker.consume("one-alarm")
    assert (headers["mqtt-retain"], key, value) == ("1", "alarm/fire", "!")
    assert state(node)["lag"] == 0


@pytest.mark.parametrize("hangs", [True, False], ids=["stopped", "killed"])
def test_an_outage_of_kafka_loses_nothing(make_site: Callable[..., list[Node]], broker: Kafka, hangs: bool) -> None:  # noqa: F811
    """DP-03: SIGSTOP and kill -9 of Kafka under load: publishers go on, everything arrives in order, nothing twice."""
    topic = f"outage-{hangs}"
    (node,) = make_site(bridge(broker, **{"from": ["up/#"]}, topic=topic))
    wait_for("the bridge runs", lambda: runs(node), DEADLINE)
    load = Load(node.port, "up/load", 1)
    wait_for("the load flows", lambda: metric(node.http, "sedge_bridge_messages_out_total") > 200, DEADLINE)
    if hangs:
        broker.signal(signal.SIGSTOP)
    else:
        broker.kill()
    before = len(load.acknowledged)
    wait_for("publishers go on", lambda: load.has_sent(before + 1000), DEADLINE)
    wait_for("messages wait", lambda: state(node)["lag"] > 300, DEADLINE)
    if hangs:
        broker.signal(signal.SIGCONT)
    else:
        broker.start()
    sent = load.stop()
    wait_for("everything is there", lambda: metric(node.http, "sedge_bridge_messages_out_total") >= len(sent), DEADLINE)
    wait_for("the bridge runs", lambda: runs(node), DEADLINE)
    assert check(broker.consume(topic), sent) == 0


@pytest.mark.parametrize("exactly", [False, True], ids=["reports", "transactions"])
def test_a_topic_that_takes_little_at_a_time(make_site: Callable[..., list[Node]], broker: Kafka, exactly: bool) -> None:  # noqa: F811
    """DP-03: a batch is larger than the topic allows: its records come in smaller ones, and only the one that is too large by itself is refused."""
    topic = f"little-{exactly}"
    broker.create(topic, "--partitions", "1", "--config", "max.message.bytes=20000")
    (node,) = make_site(bridge(broker, **{"from": ["little/#"]}, topic=topic, transactional=exactly))
    wait_for("the bridge runs", lambda: runs(node), DEADLINE)
    near = node.client("near", clean=True)
    broker.signal(signal.SIGSTOP)
    sent = [f"{number}:{'x' * 500}" for number in range(400)]
    for number, payload in enumerate(sent):
        near.publish("little/1", payload, qos=1)
        if number == 100:
            near.publish("little/1", "y" * 30_000, qos=1)
    wait_for("messages wait", lambda: state(node)["lag"] >= 401, DEADLINE)
    broker.signal(signal.SIGCONT)
    wait_for("nothing waits any more", lambda: state(node)["lag"] == 0, DEADLINE)
    assert metric(node.http, "sedge_bridge_refused_total") == 1
    values = [value for _, _, value in broker.consume(topic, committed=exactly)]
    assert [int(value.split(":")[0]) for value in dict.fromkeys(values)] == list(range(400))


@pytest.mark.parametrize("qos", [1, 2])
def test_the_successor_of_a_killed_node_goes_on(make_site: Callable[..., list[Node]], broker: Kafka, qos: int) -> None:  # noqa: F811
    """DP-01, DP-03: kill -9 of the bridging node under load: no gap, and messages that come twice have the same identity."""
    topic = f"successor-{qos}"
    nodes = make_site(bridge(broker, **{"from": ["up/#"]}, topic=topic), 3)
    wait_for("one runs the bridge, and the others know", lambda: all_know(nodes), DEADLINE)
    first = the_runner(nodes)
    others = [node for node in nodes if node is not first]
    load = Load(others[0].port, "up/load", qos)
    wait_for("the load flows", lambda: metric(first.http, "sedge_bridge_messages_out_total") > 200, DEADLINE)
    first.kill()
    wait_for("another node runs it", lambda: any(runs(node) for node in others), 20)
    count = len(load.acknowledged)
    wait_for("the load goes on", lambda: load.has_sent(count + 200), DEADLINE)
    sent = load.stop()
    wait_for("nothing waits", lambda: all(state(node)["lag"] == 0 for node in others), DEADLINE)
    check(broker.consume(topic), sent)


def test_commands_come_in_once_committed(make_site: Callable[..., list[Node]], broker: Kafka) -> None:  # noqa: F811
    """DP-05, O2: the key names the topic; acknowledged messages do not come again after a restart, those that came meanwhile do."""
    broker.create("commands")
    (node,) = make_site(bridge(broker, direction="in", **{"from": ["commands"]}, topic="{key}"))
    near = node.client("near")
    near.subscribe("plug/#", qos=1)
    wait_for("the bridge runs", lambda: runs(node), DEADLINE)
    broker.produce("commands", [("plug/1", f"{number}") for number in range(20)])
    for number in range(20):
        near.message(str(number), topic="plug/1", qos=1, timeout=DEADLINE)
    broker.produce("commands", [("a/+", "no name")])
    wait_for("it is dropped", lambda: metric(node.http, "sedge_bridge_dropped_total") == 1, DEADLINE)
    near.disconnect()
    node.stop()
    broker.produce("commands", [("plug/1", f"{number}") for number in range(20, 40)])
    node.start()
    near = node.client("near")
    for number in range(20, 40):
        near.message(str(number), topic="plug/1", qos=1, timeout=DEADLINE)


def test_no_publisher_is_acknowledged_before_kafka_has_the_message(make_site: Callable[..., list[Node]], broker: Kafka) -> None:  # noqa: F811
    """DP-03: `ack = "remote"`: while Kafka is dead there is no PUBACK and no PUBREC at any node; then both come, and the records are there."""
    nodes = make_site(bridge(broker, **{"from": ["up/#"], "buffer.full": "refuse"}, topic="acknowledged", ack="remote"), 3)
    wait_for("one runs the bridge, and the others know", lambda: all_know(nodes), DEADLINE)
    publishers = [node.client(f"publisher-{number}", clean=True) for number, node in enumerate(nodes)]
    for number, publisher in enumerate(publishers):
        pid = publisher.start_publish(f"up/{number}", f"{number}-before", qos=1)
        publisher.expect(T.PUBACK, timeout=DEADLINE, pid=pid)
    broker.kill()
    pids = [[publisher.start_publish(f"up/{number}", f"{number}-{qos}", qos=qos) for qos in (1, 2)] for number, publisher in enumerate(publishers)]
    wait_for("the publications wait", lambda: sum(metric(node.http, "sedge_awaited_publications") for node in nodes) == 6, DEADLINE)
    for publisher in publishers:
        is_not_answered(publisher, 1.0)
    broker.start()
    for publisher, (first, second) in zip(publishers, pids, strict=True):
        publisher.expect(T.PUBACK, timeout=DEADLINE, pid=first)
        publisher.expect(T.PUBREC, timeout=DEADLINE, pid=second)
    values = [value for _, _, value in broker.consume("acknowledged")]
    assert sorted(values) == sorted(f"{number}-{what}" for number in range(3) for what in ("before", 1, 2))


@pytest.mark.parametrize("encrypted", [False, True], ids=["plain", "tls"])
def test_a_kafka_with_accounts(make_site: Callable[..., list[Node]], tmp_path: Path, encrypted: bool) -> None:  # noqa: F811
    """DP-01: user name and password, over TLS too; a wrong password, or an authority that is not trusted, is told, and messages wait."""
    certificate = None
    if encrypted:
        if not TLS:
            pytest.skip("this program has no TLS to Kafka: SEDGE_KAFKA_TLS=1 says that it has")
        for name in ("ca", "other"):
            authority(tmp_path, name)
        sign(tmp_path, "ca", "kafka", "localhost")
        certificate = tmp_path / "kafka.pem"
        certificate.write_text((tmp_path / "kafka.key").read_text() + (tmp_path / "kafka.crt").read_text() + (tmp_path / "ca.crt").read_text())
    guarded = Kafka(tmp_path, {"site": "right"}, certificate).start()
    secret, trusted = tmp_path / "secret", tmp_path / "trusted.crt"
    secret.write_text("wrong\n")
    settings: dict[str, object] = {"sasl": "plain", "username": "site", "password_file": str(secret)}
    if encrypted:
        trusted.write_text((tmp_path / "other.crt").read_text())
        settings |= {"tls": True, "ca_file": str(trusted)}
    try:
        (node,) = make_site(bridge(guarded, address=[f"localhost:{guarded.guarded}"], **{"from": ["up/#"]}, topic="guarded", **settings))
        if encrypted:
            wait_for("the authority is not trusted", lambda: "certificate" in (state(node)["last_error"] or "").lower(), DEADLINE)
            trusted.write_text((tmp_path / "ca.crt").read_text())
        wait_for("the password is wrong", lambda: "authentication" in (state(node)["last_error"] or "").lower(), DEADLINE)
        node.client("near", clean=True).publish("up/a", "x", qos=1)
        secret.write_text("right\n")
        wait_for("the message is there", lambda: metric(node.http, "sedge_bridge_messages_out_total") == 1, DEADLINE)
        assert [value for _, _, value in guarded.consume("guarded")] == ["x"]
    finally:
        guarded.stop()
