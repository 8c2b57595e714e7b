"""SUBACK means that the cluster knows, and publications cross only towards interest (DESIGN section 1)."""

from __future__ import annotations

import mqttwire as w
from client import Client
from cluster import HOST, Cluster, wait_for
from mqttwire import T, V5

ROUNDS = 10_000


def connected(cluster: Cluster, node: int, client_id: str, **options: object) -> Client:
    """A raw client at this node (counted from 0)."""
    client = Client(HOST, cluster.port + node, V5, timeout=10)
    client.connect(client_id, **options)
    return client


def test_publish_right_after_suback_is_never_missed(cluster: Cluster) -> None:
    """FT-12: 10,000 new topics in a row, SUBSCRIBE on node 1, PUBLISH on node 3."""
    listening, speaking = connected(cluster, 0, "suback-sub"), connected(cluster, 2, "suback-pub")
    for number in range(ROUNDS):
        topic = f"suback/{number}"
        listening.subscribe(topic)
        speaking.send(w.publish(V5, topic, b"x"))
        assert listening.expect(T.PUBLISH).topic == topic
        listening.inbox.clear()
    listening.disconnect()
    speaking.disconnect()


def routes(cluster: Cluster, node: int, topic: str) -> list[tuple[str, str | None]]:
    """(node, client) of the lines for this filter."""
    return [(line["node"], line["client"]) for line in cluster.routes(node) if line["filter"] == topic]


def test_every_node_lists_the_subscription_until_the_last_client_drops_it(cluster: Cluster) -> None:
    """FT-09 FT-10 FT-12 FT-13: routing tables of all nodes, and reference counts."""
    owner = cluster.status(0)["node"]
    first, second = connected(cluster, 0, "ref-1"), connected(cluster, 0, "ref-2")
    for client in (first, second):
        client.subscribe("ref/x")
    for node in range(3):
        assert sorted(routes(cluster, node, "ref/x")) == [(owner, "ref-1"), (owner, "ref-2")]
    first.unsubscribe("ref/x")
    for node in range(3):
        assert routes(cluster, node, "ref/x") == [(owner, "ref-2")]
    speaking = connected(cluster, 1, "ref-pub")
    speaking.publish("ref/x", b"still", qos=1)
    second.message("still")
    second.disconnect()  # a clean session ends with its connection
    wait_for("no route is left", lambda: not any(routes(cluster, node, "ref/x") for node in range(3)))


def test_nodes_without_interest_get_nothing(cluster: Cluster) -> None:
    """FT-14: counters of the links stay still towards nodes without a matching filter."""
    listening, speaking = connected(cluster, 1, "traffic-sub"), connected(cluster, 0, "traffic-pub")
    listening.subscribe("traffic/only/here", qos=1)

    def sent() -> dict[str, int]:
        return {member["node"]: member["link"]["publications_sent"]
                for member in cluster.api(0, "cluster")["members"] if member["link"]}

    before = sent()
    for number in range(100):
        speaking.publish("traffic/only/here", str(number), qos=1)
        speaking.publish("traffic/nowhere", str(number), qos=1)
    after = sent()
    grown = {node: after[node] - before[node] for node in after}
    interested, idle = cluster.status(1)["node"], cluster.status(2)["node"]
    assert grown == {interested: 100, idle: 0}
