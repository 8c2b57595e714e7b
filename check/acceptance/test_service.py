"""One service on several nodes: sessions, takeover, retained messages, wills, shared subscriptions."""

from __future__ import annotations

import socket
import struct
from collections import Counter

import mqttwire as w
import pytest

from client import Client
from cluster import HOST, Cluster, wait_for
from mqttwire import T, V5, V311

PERSISTENT = {"session_expiry_interval": 300}


def connected(cluster: Cluster, node: int, client_id: str, version: int = V5, **options: object) -> Client:
    """A raw client at this node (counted from 0)."""
    client = Client(HOST, cluster.port + node, version, timeout=10)
    client.connect(client_id, **options)
    return client


def cut(client: Client) -> None:
    """Ends the connection as a crash of the client would: without DISCONNECT, by RST."""
    client.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    client.close()


@pytest.mark.parametrize("version", [V311, V5])
def test_second_connect_on_another_node_closes_the_first(cluster: Cluster, version: int) -> None:
    """MQ-11: takeover across nodes; 5.0 clients are told 0x8E."""
    first = connected(cluster, 0, f"taken-{version}", version)
    second = connected(cluster, 1, f"taken-{version}", version)
    left = first.read_until_closed()
    assert [packet.reason for packet in left if packet.type == T.DISCONNECT] == ([0x8E] if version == V5 else [])
    second.ping()
    third = connected(cluster, 2, f"taken-{version}", version)
    second.read_until_closed()
    third.ping()
    third.disconnect()


def test_session_follows_its_client_to_another_node(cluster: Cluster) -> None:
    """MQ-09 MQ-11: subscriptions, queue and unacknowledged messages move with the session."""
    client = connected(cluster, 0, "mover", clean=True, props=PERSISTENT)
    client.subscribe("moving/#", qos=2)
    speaking = connected(cluster, 2, "mover-pub")
    speaking.publish("moving/1", "unacknowledged", qos=1)
    client.expect(T.PUBLISH)
    cut(client)
    for number in range(100):
        speaking.publish("moving/2", str(number), qos=1 + number % 2)
    client = Client(HOST, cluster.port + 1, V5, timeout=10)
    assert client.try_connect("mover", clean=False, props=PERSISTENT).session_present
    assert client.message().payload == b"unacknowledged"
    for number in range(100):
        client.message(str(number))
    speaking.publish("moving/3", "live", qos=1)
    client.message("live")
    client.nothing()
    client.disconnect()


def test_clean_start_elsewhere_ends_the_session(cluster: Cluster) -> None:
    """MQ-09: nothing of the old session survives a clean start on another node."""
    client = connected(cluster, 0, "cleaner", clean=True, props=PERSISTENT)
    client.subscribe("cleaner/#", qos=1)
    client.disconnect()
    speaking = connected(cluster, 2, "cleaner-pub")
    speaking.publish("cleaner/1", "old", qos=1)
    client = Client(HOST, cluster.port + 1, V5, timeout=10)
    assert not client.try_connect("cleaner", clean=True, props=PERSISTENT).session_present
    speaking.publish("cleaner/1", "new", qos=1)
    client.nothing()
    client.disconnect()


def test_retained_message_is_on_every_node_until_it_is_cleared(cluster: Cluster) -> None:
    """MQ-07: published at one node, found at all; an empty payload clears it everywhere."""
    speaking = connected(cluster, 0, "retain-pub")
    speaking.publish("retained/x", "kept", qos=1, retain=True)
    for node in range(3):
        reader = connected(cluster, node, f"retain-{node}")
        reader.subscribe("retained/+", qos=1)
        reader.message("kept", retain=True)
        reader.disconnect()
    speaking.publish("retained/x", "", qos=1, retain=True)
    for node in range(3):
        reader = connected(cluster, node, f"retain-{node}")
        reader.subscribe("retained/+", qos=1)
        reader.nothing()
        reader.disconnect()


@pytest.mark.parametrize("version", [V311, V5])
def test_will_reaches_other_nodes_when_the_client_is_lost_and_only_then(cluster: Cluster, version: int) -> None:
    """MQ-08: socket killed: the will arrives, retained too; DISCONNECT: it does not."""
    reader = connected(cluster, 2, f"will-reader-{version}")
    reader.subscribe("wills/#", qos=1)
    lost = connected(cluster, 0, f"will-lost-{version}", version,
                     will=w.Will(f"wills/lost-{version}", b"gone", qos=1, retain=True))
    polite = connected(cluster, 1, f"will-polite-{version}", version,
                       will=w.Will(f"wills/polite-{version}", b"never", qos=1))
    polite.disconnect()
    cut(lost)
    reader.message("gone", topic=f"wills/lost-{version}")
    reader.nothing()
    late = connected(cluster, 1, f"will-late-{version}")
    late.subscribe(f"wills/lost-{version}")
    late.message("gone", retain=True)
    late.publish(f"wills/lost-{version}", "", qos=1, retain=True)
    reader.message("")
    for client in (reader, late):
        client.disconnect()


def test_shared_subscription_counts_the_whole_cluster_as_one_group(cluster: Cluster) -> None:
    """Each message of 900 goes to exactly one of six members on three nodes; none is left out."""
    members = [connected(cluster, number % 3, f"share-{number}") for number in range(6)]
    for member in members:
        member.subscribe("$share/workers/jobs/#", qos=1)
    speakers = [connected(cluster, node, f"share-pub-{node}") for node in range(3)]
    for number in range(900):
        speakers[number % 3].publish(f"jobs/{number % 7}", str(number), qos=1)
    got: list[list[bytes]] = [[] for _ in members]

    def collect() -> int:
        for index, member in enumerate(members):
            member.ping()
            for packet in [one for one in member.inbox if one.type == T.PUBLISH]:
                member.inbox.remove(packet)
                member.finish(packet)
                got[index].append(packet.payload)
        return sum(map(len, got)) >= 900

    wait_for("900 messages", collect)
    copies = Counter(payload for one in got for payload in one)
    assert set(copies.values()) == {1} and len(copies) == 900
    assert min(map(len, got)) > 0, f"members left out: {[len(one) for one in got]}"
    for client in members + speakers:
        client.disconnect()


def test_other_clients_never_notice_malformed_bytes(cluster: Cluster) -> None:
    """MQ-12: garbage on every node at every stage closes its own connection only."""
    reader, speaking = connected(cluster, 0, "calm-sub"), connected(cluster, 2, "calm-pub")
    reader.subscribe("calm/#", qos=1)
    garbage = [b"\xff" * 64, b"\x10\xff\xff\xff\xff\x7f", b"\x00\x00", b"GET / HTTP/1.1\r\n\r\n", b"\x30\x03\x00\x01+"]
    for node in range(3):
        for number, piece in enumerate(garbage):
            stranger = Client(HOST, cluster.port + node, V5, timeout=10)
            stranger.send(piece)
            stranger.read_until_closed()
            wild = connected(cluster, node, f"wild-{node}-{number}")
            wild.send(piece)
            left = wild.read_until_closed()
            assert left and left[-1].type == T.DISCONNECT and left[-1].reason >= 0x80
    speaking.publish("calm/1", "all is well", qos=2)
    reader.message("all is well")
    reader.nothing()
    for client in (reader, speaking):
        client.disconnect()


def test_session_expires_everywhere(cluster: Cluster) -> None:
    """MQ-09: an expired session is found on no node, and its routes are gone."""
    client = connected(cluster, 0, "brief", clean=True, props={"session_expiry_interval": 1})
    client.subscribe("brief/x", qos=1)
    client.disconnect()
    wait_for("the routes of the expired session are gone",
             lambda: not any(line["filter"] == "brief/x" for node in range(3) for line in cluster.routes(node)))
    client = Client(HOST, cluster.port + 1, V5, timeout=10)
    assert not client.try_connect("brief", clean=False).session_present
    client.send(w.disconnect(V5))
    client.close()
