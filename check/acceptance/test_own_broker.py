"""Nodes before unmodified brokers: one service made of several Mosquittos (docs/own-broker.md)."""

from __future__ import annotations

import os
import random
import signal
import socket
import ssl
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from broker import MAKES, Impostor, Make, Mosquitto, Sidecar, running
from client import Client, ClientError
from cluster import HOST, Cluster, free_base, get, metric, wait_for
from durable import DAY, Node, Publisher, Side, Subscriber, first_times, knows_all, move, pump, settle
from mqttwire import V5, V311, T, Will, connect
from pki import authority, sign

Site = list[Sidecar]
# How often brokers and nodes are killed in the tests that do so: `./test kills` asks for many.
KILLS = int(os.environ.get("SEDGE_KILLS", "0"))


@pytest.fixture
def site(binary: Path, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Site]:
    """Nodes that know each other, each before a broker of its own: three Mosquittos, one of them at a Unix socket, or the makes that are
    asked for."""
    # Other makes take longer to start.
    settings = getattr(request, "param", "" if set(MAKES) == {"mosquitto"} else 'grace = "90s"\n')
    made = [Sidecar(binary, tmp_path / f"node{number}", upstream=settings, make=make, local=number == 1) for number, make in enumerate(MAKES)]
    with running(made):
        yield made


def at(port: int, name: str, version: int = V5, **options: object) -> Client:
    """A connected client."""
    client = Client(HOST, port, version, timeout=10)
    client.connect(name, **options)
    return client


def receives(client: Client, topic: str, payload: bytes, seconds: float = 10) -> None:
    """Waits until a client has got this message."""
    def there() -> bool:
        try:
            got = client.message(timeout=0.05)
        except ClientError:
            return False
        return (got.topic, got.payload) == (topic, payload)
    wait_for(f"{payload!r} at {topic}", there, seconds)


@pytest.mark.parametrize("version", [V311, V5])
def test_publications_reach_clients_and_brokers_of_all_nodes(site: Site, version: int) -> None:
    """FT-02, IL-02, IL-03, IL-13: a publication at one node comes to clients of all nodes, and to clients that are connected to the
    other brokers directly; retained messages are set and cleared in all brokers."""
    readers = [at(node.port, f"reader-{number}", version) for number, node in enumerate(site)]
    direct = [at(node.broker.port, f"direct-{number}", node.broker.version(version)) for number, node in enumerate(site)]
    for client in [*readers, *direct]:
        client.subscribe("a/#", qos=1)
    writer = at(site[0].port, "writer", version)
    writer.publish("a/b", b"to all", qos=1)
    # No client of these nodes has asked for the topics that the brokers' own clients have asked for: only node 0 gives them to its broker.
    for client in [*readers, direct[0]]:
        receives(client, "a/b", b"to all")
    writer.publish("a/kept", b"value", qos=1, retain=True)

    def kept(node: Sidecar) -> list[bytes]:
        probe = at(node.broker.port, "probe", node.broker.version(V5))
        probe.subscribe("a/kept", qos=0)
        probe.ping()
        found = [got.payload for got in probe.inbox if got.type == T.PUBLISH]
        probe.disconnect()
        return found

    wait_for("all brokers hold it", lambda: all(kept(node) == [b"value"] for node in site))
    writer.publish("a/kept", b"", qos=1, retain=True)
    wait_for("all brokers have cleared it", lambda: all(kept(node) == [] for node in site))
    # A value that only one broker has, from a client of its own, is cleared as well.
    direct[1].publish("a/kept", b"direct", qos=1, retain=True)
    wait_for("one broker has it", lambda: [kept(node) for node in site] == [[b"direct"] if node is site[1] else [] for node in site])
    writer.publish("a/kept", b"", qos=1, retain=True)
    wait_for("that broker has cleared it, too", lambda: all(kept(node) == [] for node in site))


def test_a_client_has_one_session_with_the_broker_and_both_end_together(site: Site) -> None:
    """IL-03, IL-20, IL-22, mosquitto#2259: the broker sees the client under its own name; 1,000 quick requests end in the right state."""
    node = site[0]
    client = at(node.port, "paired", V5)
    wait_for("the broker knows the client", lambda: "as paired (" in node.broker.log.read_text())
    for number in range(500):
        client.subscribe("quick", qos=1)
        if number < 499:
            client.unsubscribe("quick")
    writer = at(site[1].port, "writer", V5)
    writer.publish("quick", b"once", qos=1)
    receives(client, "quick", b"once")
    client.disconnect()
    wait_for("the broker has seen its end", lambda: "Client paired disconnected" in node.broker.log.read_text())


def test_the_broker_decides_whom_it_lets_in_and_what_it_grants(binary: Path, tmp_path: Path) -> None:
    """IL-01, IL-22: name and password go to the broker; a filter that it refuses is refused, and nobody routes it."""
    passwords, rules = tmp_path / "passwd", tmp_path / "acl"
    subprocess.run(["mosquitto_passwd", "-c", "-b", str(passwords), "anna", "right"], check=True, timeout=20)
    rules.write_text("user anna\ntopic readwrite open/#\nuser inlet\ntopic readwrite #\n")
    subprocess.run(["mosquitto_passwd", "-b", str(passwords), "inlet", "secret"], check=True, timeout=20)
    for path in (passwords, rules):
        path.chmod(0o644)
    secret = tmp_path / "secret"
    secret.write_text("secret\n")
    upstream = f'user = "inlet"\npassword_file = "{secret}"\n'
    node = Sidecar(binary, tmp_path / "node", f"password_file {passwords}", f"acl_file {rules}", "allow_anonymous false", upstream=upstream)
    try:
        node.broker.start()
        node.start()
        with pytest.raises(ClientError, match="0x86|0x87|0x05"):
            at(node.port, "wrong", V5, username="anna", password=b"wrong")
        client = at(node.port, "right", V5, username="anna", password=b"right")
        client.subscribe("open/x", qos=1)
        client.publish("open/x", b"seen", qos=1)
        receives(client, "open/x", b"seen")
    finally:
        node.stop()
        node.broker.stop()


def test_wills_come_once_whoever_dies(site: Site) -> None:
    """IL-14: a client that is lost has its will published once at its own node and once at the others."""
    near, far = at(site[0].port, "near", V5), at(site[2].port, "far", V5)
    for client in (near, far):
        client.subscribe("will/#", qos=1)
    dying = at(site[0].port, "dying", V5, will=Will("will/dying", b"gone", 1))
    dying.drop()
    for client in (near, far):
        receives(client, "will/dying", b"gone")
        client.nothing()


@pytest.mark.parametrize("site", ['grace = "1s"\n'], indirect=True)
def test_clients_of_a_broker_that_stays_away_are_let_go_with_their_wills(site: Site) -> None:
    """IL-15: the broker is killed: after the grace its clients are told so, and their wills come at the other nodes."""
    far = at(site[1].port, "far", V5)
    far.subscribe("will/#", qos=1)
    client = at(site[0].port, "client", V5, will=Will("will/client", b"gone", 1))
    site[0].broker.kill()
    got = client.expect(T.DISCONNECT, timeout=10)
    assert got.reason >= 0x80
    receives(far, "will/client", b"gone")
    status = site[0].status()
    assert not status["ready"] and "broker behind the node" in str(status["not_ready"])
    site[0].broker.start()
    wait_for("the node is ready again", lambda: site[0].status()["ready"], 20)
    again = at(site[0].port, "client", V5)
    again.subscribe("x", qos=1)
    at(site[2].port, "writer", V5).publish("x", b"back", qos=1)
    receives(again, "x", b"back")


def load(publishers: list[Publisher], sides: list[Side], seconds: float) -> None:
    """Publishes for a while, as fast as acknowledgements come."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        for publisher in publishers:
            if len(publisher.open) < 10:
                publisher.publish()
        for side in sides:
            assert pump(side), f"{side.name}: the connection was ended"


def balance(publishers: list[Publisher], subscribers: list[Subscriber]) -> None:
    """Nothing acknowledged is lost, nothing with QoS 2 has come twice, the order is kept."""
    sides: list[Side] = [*subscribers, *publishers]
    settle(sides, lambda: not any(p.open for p in publishers), lambda: [(p.name, p.open) for p in publishers])
    pairs = list(zip(publishers, subscribers, strict=True))

    def missing() -> dict[str, list[int]]:
        found = {s.name: sorted(set(range(p.next)) - set(s.got)) for p, s in pairs}
        return {name: numbers for name, numbers in found.items() if numbers}

    settle(sides, lambda: not missing(), missing)
    for publisher, subscriber in pairs:
        assert first_times(subscriber.got) == sorted(set(subscriber.got)), f"{subscriber.name}: out of order"
        if publisher.qos == 2:
            assert len(subscriber.got) == len(set(subscriber.got)), f"{subscriber.name}: a message came twice"


def pairs_at(site: Site) -> tuple[list[Publisher], list[Subscriber], dict[str, Node]]:
    """A publisher and a subscriber of each QoS for each node and its neighbour."""
    publishers = [Publisher(f"pub-{qos}-{i}", f"load/{qos}/{i}", qos) for qos in (1, 2) for i in range(len(MAKES))]
    subscribers = [Subscriber(f"sub-{p.qos}-{p.topic[-1]}", p.topic, p.qos) for p in publishers]
    where: dict[str, Node] = {}
    for number, (publisher, subscriber) in enumerate(zip(publishers, subscribers, strict=True)):
        where[publisher.name], where[subscriber.name] = site[number % len(site)], site[(number + number // len(site)) % len(site)]
        subscriber.connect(where[subscriber.name])
        publisher.connect(where[publisher.name])
    return publishers, subscribers, where


def test_a_broker_that_is_killed_and_started_again_loses_nothing(site: Site) -> None:
    """FT-02, FT-20, mosquitto#3394, mosquitto#3472, vernemq#654: under load each broker is killed in turn and started again within the
    grace: clients stay connected, nothing acknowledged is lost, nothing with QoS 2 comes twice, although Mosquitto has no persistence."""
    publishers, subscribers, _ = pairs_at(site)
    sides: list[Side] = [*subscribers, *publishers]
    for number in range(KILLS or (2 * len(site) if len(set(MAKES)) == 1 else len(site))):
        load(publishers, sides, 0.3)
        victim = site[number % len(site)]
        victim.broker.kill()
        load(publishers, sides, 0.2)
        victim.broker.start()
        load(publishers, sides, 0.3)
        wait_for("its node has it back", lambda at=victim: at.upstream()["up"], 20)
    balance(publishers, subscribers)


def test_a_burst_is_no_more_at_once_than_the_broker_takes(site: Site) -> None:
    """MQ-09, IL-20: a client publishes 200 messages with QoS 2 in one go; alone, Mosquitto drops those above 20 and acknowledges them."""
    # A client that knows nothing of the node gets only the messages that the broker has.
    reader, writer = at(site[0].broker.port, "reader"), at(site[0].port, "writer", V311)
    reader.subscribe("burst", qos=2)
    site[0].broker.signal(signal.SIGSTOP)
    pids = [writer.start_publish("burst", str(number), qos=2) for number in range(200)]
    wait_for("all wait for the broker", lambda: metric(site[0].http, "sedge_publishes_received_total", qos="2") >= 200)
    site[0].broker.signal(signal.SIGCONT)
    for pid in pids:
        writer.expect(T.PUBREC, pid=pid)
        writer.release(pid)
    assert [int(reader.message(timeout=20).payload) for _ in pids] == list(range(200))


def test_sessions_move_from_broker_to_broker(site: Site) -> None:
    """MQ-11, FT-22: clients change the node under load: subscriptions, queue and QoS 2 state follow, although their brokers know nothing of
    each other."""
    rng = random.Random(1)
    publishers, subscribers, where = pairs_at(site)
    sides: list[Side] = [*subscribers, *publishers]
    for _ in range(12):
        load(publishers, sides, 0.1)
        side = rng.choice(sides)
        move(side, rng.choice([node for node in site if node is not where[side.name]]), where)
    load(publishers, sides, 0.2)
    balance(publishers, subscribers)


def test_a_session_that_moves_leaves_no_interest_behind(site: Site) -> None:
    """FT-17, IL-13: each node that a session leaves forgets the session's filters, so that publications go to one node, and to none at its end."""
    def wanting() -> dict[str, list[str]]:
        """By the node that is asked: the nodes that want the filter."""
        found = {}
        for node in site:
            routes = get(f"http://{HOST}:{node.http}/api/v1/routes?limit=1000")["routes"]
            found[str(node.port)] = [route["name"] for route in routes if route["filter"] == "wander/#"]
        return found

    writer = at(site[0].port, "writer")
    for turn in range(7):
        node = site[turn % len(site)]
        client = at(node.port, "wanderer", clean=turn == 0, props=DAY)
        if turn == 0:
            client.subscribe("wander/#", qos=1)
        writer.publish("wander/x", str(turn).encode(), qos=1)
        receives(client, "wander/x", str(turn).encode())
        name = str(node.status()["name"])
        wait_for("that node alone wants it", lambda name=name: all(found == [name] for found in wanting().values()), 20)
        client.close()
    client = at(site[0].port, "wanderer", clean=True)
    wait_for("nobody wants it", lambda: not any(wanting().values()), 20)
    writer.publish("wander/x", b"for nobody", qos=1, allowed=(0x10,))
    client.close()


@pytest.mark.parametrize("both", [False, True], ids=["node", "node and broker"])
def test_sessions_go_on_when_their_node_is_killed(site: Site, both: bool) -> None:
    """FT-20, FT-21, IL-14: under load a node, or a node and its broker, are killed; its clients go on at another node and broker, and those
    that do not come back have their wills published once."""
    publishers, subscribers, where = pairs_at(site)
    witness = Subscriber("witness", "gone/#", 2)
    where[witness.name] = site[0]
    witness.connect(site[0])
    sides: list[Side] = [*subscribers, *publishers, witness]

    def is_whole(node: Node) -> bool:
        status = node.status()
        return status["copies"] == status["copies_wanted"] == 2 and status["moving"] == status["orphaned"] == 0

    kills = KILLS or len(site) + 1
    for number in range(kills):
        wait_for("everything is copied", lambda: all(is_whole(node) for node in site), 30)
        load(publishers, sides, 0.3)
        victim = site[number % len(site)]
        mortal = at(victim.port, f"mortal-{number}", V5, will=Will(f"gone/{number}", str(number).encode(), 2))
        victim.kill()
        mortal.drop()
        if both:
            victim.broker.kill()
        for side in [side for side in sides if where[side.name] is victim]:
            while pump(side):
                pass
            where[side.name] = site[(number + 1) % len(site)]
            side.connect(where[side.name])
        load(publishers, sides, 0.3)
        if both:
            victim.broker.start()
        victim.start()
        wait_for("it is linked again", lambda: all(knows_all(node, len(site)) for node in site), 30)
    balance(publishers, subscribers)
    settle(sides, lambda: len(witness.got) >= kills, lambda: f"wills of {sorted(set(range(kills)) - set(witness.got))} are missing")
    assert sorted(witness.got) == list(range(kills)), "a will came twice"


def test_a_broker_that_hangs_holds_up_nobody_but_its_own_publishers(site: Site) -> None:
    """A stopped Mosquitto: publishers at other nodes are acknowledged, its own subscribers get the node's copy, and nothing comes twice when
    it goes on."""
    near, far = at(site[0].port, "near", V5), at(site[1].port, "far", V5)
    for client in (near, far):
        client.subscribe("h/#", qos=2)
    writer = at(site[2].port, "writer", V5)
    site[0].broker.signal(signal.SIGSTOP)
    try:
        for number in range(3):
            writer.publish("h/1", str(number).encode(), qos=2)
        got = [near.message() for _ in range(3)]
        assert [int(packet.payload) for packet in got] == [0, 1, 2]
    finally:
        site[0].broker.signal(signal.SIGCONT)
    for client in (far, near):
        client.publish("h/2", b"last", qos=2)
    # Messages that the broker delivers late come ahead of this.
    payloads = [near.message().payload for _ in range(2)]
    assert payloads == [b"last", b"last"]


def test_shared_subscriptions_count_the_whole_cluster(site: Site) -> None:
    """MQ-14: members of one group at different brokers share its messages, each of which comes once."""
    members = [at(node.port, f"member-{number}", V5) for number, node in enumerate(site)]
    for member in members:
        member.subscribe("$share/g/s/#", qos=1)
    writer = at(site[0].port, "writer", V5)
    for number in range(60):
        writer.publish("s/x", str(number).encode(), qos=1)
    got: list[list[int]] = [[] for _ in site]

    def all_there() -> bool:
        for member, mine in zip(members, got, strict=True):
            try:
                while True:
                    packet = member.message(timeout=0.02)
                    mine.append(int(packet.payload))
            except ClientError:
                pass
        return sum(map(len, got)) >= 60

    wait_for("all are there", all_there, 20)
    assert sorted(number for mine in got for number in mine) == list(range(60))
    assert all(got), got


def test_what_a_direct_client_of_a_broker_says_stays_with_that_broker(site: Site) -> None:
    """A publication of a client that is connected to a broker directly comes to that broker's clients, behind the node and not."""
    near, far = at(site[0].port, "near", V5), at(site[1].port, "far", V5)
    for client in (near, far):
        client.subscribe("d/#", qos=1)
    at(site[0].broker.port, "legacy", V311).publish("d/1", b"local", qos=1)
    receives(near, "d/1", b"local")
    far.nothing()


@pytest.mark.parametrize(
    ("answer", "words"),
    [(b"HTTP/1.1 400 Bad Request\r\n\r\n", "breaks the rules of MQTT"), (b"\x20\x02\x00\x05", "refuses"), (b"", "closed")],
    ids=["no MQTT", "refusal", "nothing"],
)
def test_a_broker_that_is_none_is_named_in_log_and_status(binary: Path, tmp_path: Path, answer: bytes, words: str) -> None:
    """IL-05: whatever is behind the node, it says in one line what is wrong, and refuses its clients with 0x88."""
    impostor = Impostor(answer)
    node = Sidecar(binary, tmp_path / "node", upstream='grace = "500ms"\nmake = "Impostor 1.0"\n')
    node.extra = node.extra.replace(f"{HOST}:{node.broker.port}", f"{HOST}:{impostor.port}")
    node.spawn()
    try:
        wait_for("the API answers", lambda: _answers(node), 20)
        wait_for("the status names it", lambda: words in str(node.upstream()["last_error"]), 10)
        assert not node.status()["ready"]
        assert node.upstream()["version"] == "Impostor 1.0"
        assert "the broker behind this node" in node.log.read_text()
        with pytest.raises(ClientError, match="refused with 0x"):
            at(node.port, "client", V5)
    finally:
        node.stop()
        impostor.close()


def _answers(node: Sidecar) -> bool:
    try:
        return bool(node.status())
    except OSError:
        return False


@pytest.mark.parametrize("overlay", ["mesh", "flood", "tree", "topic-tree", "skip-graph"])
def test_every_overlay_serves_foreign_brokers(make_cluster, overlay: str) -> None:  # noqa: ANN001
    """IL-08, IL-09, IL-26, SG-34: the same scenario with every cooperation algorithm."""
    port, _, _ = free_base(4)
    cluster: Cluster = make_cluster(4, "--upstream", ",".join(MAKES), "--upstream-port", str(port), "--overlay", overlay)
    readers = [at(port, f"reader-{number}", V5) for number, port in enumerate(cluster.ports())]
    for reader in readers:
        reader.subscribe("o/#", qos=1)
    writer = at(cluster.port, "writer", V311)
    for number in range(5):
        writer.publish("o/x", str(number).encode(), qos=1)
    for reader in readers:
        for number in range(5):
            receives(reader, "o/x", str(number).encode())
        reader.nothing()


def test_wrong_settings_name_their_keys(binary: Path, tmp_path: Path) -> None:
    """IL-25: `sedge config check` names file, key and fix."""
    cases = {
        'address = ""\ninlets = 3\n': "upstream.address: is missing",
        'address = "127.0.0.1:1884"\nmode = "miror"\n': "upstream.mode",
        'address = "127.0.0.1:1884"\nca_file = "/nowhere"\n': "upstream.ca_file",
        'address = "127.0.0.1:1884"\nuser = "x"\npassword_file = "/nowhere"\n': "upstream.password_file: cannot read /nowhere",
        'address = "127.0.0.1:1883"\n': "this node's own listener",
        'address = "unix:mqtt.sock"\n': "upstream.address: \"unix:mqtt.sock\": not an absolute path",
        'address = "unix:/run/mqtt.sock"\nmode = "mirror"\n': "upstream.address: is a Unix socket, which works with upstream.mode",
        'address = "unix:/run/mqtt.sock"\nca_file = "/nowhere"\n': "upstream.ca_file: is of no use without TLS",
        'address = "unix:/run/x.sock"\n[listener.x]\nsocket = "/run/x.sock"\n': "is this node's own listener (listener.x.socket)",
    }
    for number, (text, words) in enumerate(cases.items()):
        config = tmp_path / f"{number}.toml"
        config.write_text(f"[upstream]\n{text}")
        done = subprocess.run([str(binary), "config", "check", "-c", str(config)], capture_output=True, text=True, timeout=20, check=False)
        assert done.returncode != 0 and words in done.stdout + done.stderr, (text, done.stdout, done.stderr)


def test_a_broker_behind_a_unix_socket(binary: Path, tmp_path: Path) -> None:
    """FT-02, IL-25: the broker listens at a Unix socket. More clients than its backlog has room for connect while it stands still: all are served
    when it goes on. A socket that is gone is named in the status."""
    node = Sidecar(binary, tmp_path / "node", upstream='grace = "30s"\n', local=True)
    broker = node.broker
    assert isinstance(broker, Mosquitto)
    try:
        broker.start()
        node.start()
        assert node.upstream()["address"] == f"unix:{broker.socket}"
        reader = at(node.port, "reader")
        reader.subscribe("local/#", qos=1)
        broker.signal(signal.SIGSTOP)
        crowd = [Client(HOST, node.port, V5, timeout=30) for _ in range(300)]
        for number, client in enumerate(crowd):
            client.send(connect(V5, f"crowd-{number}"))
        wait_for("their connections wait", lambda: metric(node.http, "sedge_upstream_crowded") > 0)
        broker.signal(signal.SIGCONT)
        for client in crowd:
            assert client.expect(T.CONNACK, timeout=30).reason == 0
        payload = bytes(range(256)) * 400
        for client in crowd:
            client.publish("local/x", payload, qos=1)
        for _ in crowd:
            assert reader.message(timeout=30).payload == payload
        broker.stop()
        wait_for("the status names it", lambda: str(broker.socket) in str(node.upstream()["last_error"]), 10)
        broker.start()
        wait_for("its node has it back", lambda: node.upstream()["up"], 20)
        at(node.port, "writer").publish("local/y", b"again", qos=1)
        assert reader.message(timeout=30).payload == b"again"
    finally:
        node.stop()
        broker.stop()


def test_a_client_whose_broker_has_no_room_for_it_is_not_kept_waiting_for_ever(binary: Path, tmp_path: Path) -> None:
    """IL-25: a broker that stands still has no room in its backlog: after the grace the node refuses whom it does not take, and none waits."""
    node = Sidecar(binary, tmp_path / "node", upstream='grace = "2s"\n', local=True)
    try:
        node.broker.start()
        node.start()
        node.broker.signal(signal.SIGSTOP)
        crowd = [Client(HOST, node.port, V5, timeout=60) for _ in range(300)]
        for number, client in enumerate(crowd):
            client.send(connect(V5, f"crowd-{number}"))
        wait_for("their connections wait", lambda: metric(node.http, "sedge_upstream_crowded") > 0)
        wait_for("none waits any more", lambda: metric(node.http, "sedge_upstream_crowded") == 0, 60)
        assert crowd[-1].expect(T.CONNACK, timeout=30).reason == 0x88
        assert "the broker behind this node does not answer" in node.log.read_text()
    finally:
        node.stop()
        node.broker.stop()


def test_a_node_gathers_packets_under_load_and_looks_for_the_answers_of_a_quick_broker(binary: Path, tmp_path: Path) -> None:
    """IL-25: both are counted; clients that wait for each answer are not delayed by pauses."""
    node = Sidecar(binary, tmp_path / "node", local=True)

    def gained(name: str, window: int) -> float:
        before = metric(node.http, name)
        command = [str(binary), "bench", "run", "pairs", "--broker", f"{HOST}:{node.port}", "--publishers", "20", "--subscribers", "20", "--topics", "20"]
        command += ["--rate", "0", "--window", str(window), "--burst", str(window), "--duration", "1", "--warmup", "0.2", "--quiet"]
        subprocess.run(command, capture_output=True, timeout=60, check=True)
        return metric(node.http, name) - before

    try:
        node.broker.start()
        node.start()
        assert gained("sedge_upstream_pauses_total", 8) > 0
        # With one processor nobody could answer meanwhile.
        assert (gained("sedge_upstream_lingers_total", 1) > 0) == (len(os.sched_getaffinity(0)) > 1)
    finally:
        node.stop()
        node.broker.stop()


def test_a_mosquitto_needs_nothing_but_its_address(binary: Path, tmp_path: Path) -> None:
    """FT-02, FT-43: status and listings of a node before a broker say which make and version stands behind it."""
    node = Sidecar(binary, tmp_path / "node")
    broker: Make = node.broker
    try:
        broker.start()
        node.start()
        wait_for("its make is known", lambda: "mosquitto" in str(node.upstream()["version"]), 10)
        client = at(node.port, "listed")
        client.subscribe("listed/#", qos=1)

        def said(command: str) -> str:
            where = ["--api", f"http://{HOST}:{node.http}"]
            return subprocess.run([str(binary), command, *where], capture_output=True, text=True, timeout=20, check=True).stdout

        name = str(node.status()["name"])
        assert str(broker.port) in said("status")
        for command, of in (("status", name), ("sessions", "listed"), ("routes", "listed/#"), ("topology", name)):
            lines = [line for line in said(command).splitlines() if of in line and "mosquitto version 2" in line]
            assert len(lines) == 1, f"sedge {command}: {said(command)}"
    finally:
        node.stop()
        broker.stop()


def test_the_broker_is_reached_by_tls(binary: Path, tmp_path: Path) -> None:
    """`mqtts://`: the broker's certificate has to come from `upstream.ca_file`."""
    for name in ("ca", "stranger"):
        authority(tmp_path, name)
    sign(tmp_path, "ca", "broker", "localhost")
    lines = [f"{key} {tmp_path / name}" for key, name in (("certfile", "broker.crt"), ("keyfile", "broker.key"))]
    node = Sidecar(binary, tmp_path / "node", *lines)
    try:
        node.broker.start()
        for authority_of_it, is_trusted in (("stranger", False), ("ca", True)):
            node.extra = f'[upstream]\naddress = "mqtts://localhost:{node.broker.port}"\nca_file = "{tmp_path / authority_of_it}.crt"\n'
            node.spawn()
            wait_for("the API answers", lambda: _answers(node), 20)
            if is_trusted:
                client = at(node.port, "client", V5)
                client.subscribe("x", qos=1)
                client.publish("x", b"encrypted", qos=1)
                receives(client, "x", b"encrypted")
            else:
                wait_for("the status names it", lambda: "certificate" in str(node.upstream()["last_error"]), 10)
            node.stop()
    finally:
        node.stop()
        node.broker.stop()


def test_the_broker_is_told_where_the_client_is(binary: Path, tmp_path: Path) -> None:
    """mosquitto#3317: PROXY v2 ahead of each conversation: the client's address and port as the broker would see them without the node, and
    the common name of a certificate that the client has proven to own."""
    authority(tmp_path, "ca")
    sign(tmp_path, "ca", "node", "node")
    sign(tmp_path, "ca", "sensor", "sensor 7")
    seen: list[bytes] = []
    listener = socket.create_server((HOST, 0))
    secured, _, _ = free_base(1)
    node = Sidecar(binary, tmp_path / "node", upstream='proxy_protocol = "v2"\ngrace = "1s"\n')
    node.extra = node.extra.replace(f"{HOST}:{node.broker.port}", f"{HOST}:{listener.getsockname()[1]}")
    node.extra += (
        f'[listener.tls]\nbind = "{HOST}"\nport = {secured}\ncert_file = "{tmp_path}/node.crt"\nkey_file = "{tmp_path}/node.key"\n'
        f'ca_file = "{tmp_path}/ca.crt"\nclient_cert = "optional"\n')

    def serve() -> None:
        while True:
            try:
                connection, _ = listener.accept()
                connection.settimeout(5)
                seen.append(connection.recv(1024))
                connection.close()
            except OSError:
                return

    def told(client: socket.socket, more: bytes) -> bytes:
        """The header of version 2 for this client, with this behind the addresses."""
        ours, theirs = client.getsockname(), listener.getsockname()
        ports = ours[1].to_bytes(2, "big") + theirs[1].to_bytes(2, "big")
        addresses = socket.inet_aton(ours[0]) + socket.inet_aton(theirs[0]) + ports
        return b"\r\n\r\n\0\r\nQUIT\n\x21\x11" + (len(addresses) + len(more)).to_bytes(2, "big") + addresses + more

    threading.Thread(target=serve, daemon=True).start()
    node.spawn()
    try:
        wait_for("the API answers", lambda: _answers(node), 20)
        with socket.create_connection((HOST, node.port)) as client:
            client.sendall(connect(V311, "told"))
            wanted = told(client, b"")
            wait_for("its address has come", lambda: any(head.startswith(wanted) for head in seen), 10)
        context = ssl.create_default_context(cafile=tmp_path / "ca.crt")
        for name in ("", "sensor 7"):
            if name:
                context.load_cert_chain(tmp_path / "sensor.crt", tmp_path / "sensor.key")
            with context.wrap_socket(socket.create_connection((HOST, secured)), server_hostname="localhost") as client:
                client.sendall(connect(V5, f"tls {name}"))
                # PP2_TYPE_SSL: over TLS, a certificate in connection and session, verified; PP2_SUBTYPE_SSL_CN.
                more = b"\x20\0\x10\x07\0\0\0\0\x22\0\x08sensor 7" if name else b""
                wanted = told(client, more)
                wait_for("its address and name have come", lambda wanted=wanted: any(head.startswith(wanted) for head in seen), 10)  # type: ignore[misc]
        # The inlets speak for the node itself.
        assert any(head.startswith(b"\r\n\r\n\0\r\nQUIT\n\x20") for head in seen), seen
    finally:
        node.stop()
        listener.close()
