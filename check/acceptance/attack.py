"""Attacks a cluster with everything that docs/security.md promises to withstand, for as long as it is told to (an hour).

    python3 check/acceptance/attack.py --binary target/release/sedge [--seconds 3600]

Meanwhile a client publishes numbers at QoS 1 at one node for a subscriber at another. At the end no node has ended, no number is missing, and
memory has not grown since the first quarter. It prints what it measures, and ends with 1 if one of these does not hold.
"""

from __future__ import annotations

import argparse
import base64
import os
import random
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "conformance"))
from client import Client  # noqa: E402 (beside the other tests)
from cluster import HOST, Cluster, get, resident_kib  # noqa: E402
import mqttwire as w  # noqa: E402
from mqttwire import V5, T  # noqa: E402

ROOM_KIB = 96 * 1024
"""Memory in KiB that a node may have more at the end than after the first quarter: tables fill up to their limits."""


def half_requests(cluster: Cluster) -> None:
    """Requests that never end, beside whole ones."""
    held = [socket.create_connection((HOST, cluster.http), timeout=5) for _ in range(150)]
    for one in held:
        with suppress(OSError):
            one.sendall(b"GET /api/v1/status HTTP/1.1\r\nHost: loc")
    for one in held:
        one.close()


def foreign_pages(cluster: Cluster) -> None:
    """Requests as pages of other sites send them; none may be obeyed."""
    for headers in ({}, {"Origin": "http://evil.example", "X-Sedge": "1"}, {"Host": "evil.example"}, {"Sec-Fetch-Site": "cross-site"}, {"X-Sedge": "1"}):
        request = urllib.request.Request(f"http://{HOST}:{cluster.http}/api/v1/drain?stop=true", method="POST", headers=headers)
        try:
            urllib.request.urlopen(request, timeout=5).close()
            raise AssertionError(f"obeyed with {headers}")
        except urllib.error.HTTPError as error:
            assert error.code in (401, 403), error
        except OSError:
            pass  # no connection was free


def joined(cluster: Cluster, name: str, **options: object) -> Client:
    """A client of the first node."""
    client = Client(HOST, cluster.port, V5, timeout=10)
    client.connect(name, **options)
    return client


def cleared_topics(cluster: Cluster) -> None:
    """Topics that are cleared, with values before and without."""
    client = joined(cluster, "clearer")
    for number in range(40):
        topic = f"{random.getrandbits(64)}/" + "x" * 20_000
        if number % 2:
            client.publish(topic, "value", qos=1, retain=True)
        client.publish(topic, "", qos=1, retain=True)
    client.drop()


def deaf_clients(cluster: Cluster) -> None:
    """Clients that do not read, and a message of 1 MB for each."""
    deaf = []
    for number in range(50):
        client = joined(cluster, f"deaf-{number}", clean=True)
        client.subscribe(f"deaf/{number}", qos=1)
        deaf.append(client)
    publisher = joined(cluster, "shouter", clean=True)
    for number in range(50):
        publisher.publish(f"deaf/{number}", os.urandom(900_000), qos=1)
    for client in [*deaf, publisher]:
        client.drop()


def long_names(cluster: Cluster) -> None:
    """Long filters, long client ids, control characters, deep topics."""
    client = joined(cluster, "greedy\x1b[2J\r\nERROR forged", clean=True)
    for number in range(100):
        client.try_subscribe(f"{number}/" + "y" * 60_000)
    client.drop()
    with suppress(Exception):
        joined(cluster, "z" * 60_000)
    for number in range(20):
        joined(cluster, f"{random.getrandbits(64)}", clean=True).drop()
    deep = joined(cluster, "deep", clean=True)
    with suppress(Exception):
        deep.publish("/".join("abc" * 200), "x", qos=1)
    deep.drop()


def garbage(cluster: Cluster) -> None:
    """Other protocols and noise on the ports for clients and nodes, and a WebSocket frame of 1 TiB."""
    for port in (cluster.port, cluster.cluster, cluster.http):
        for data in (os.urandom(200), b"\x16\x03\x01\x02\x00", b"GET / HTTP/1.1\r\n\r\n", b"\x10\xff\xff\xff\x7f"):
            with suppress(OSError), socket.create_connection((HOST, port), timeout=5) as one:
                one.sendall(data)
    page = cluster.http + cluster.nodes
    with suppress(OSError), socket.create_connection((HOST, page), timeout=5) as one:
        key = base64.b64encode(os.urandom(16)).decode()
        one.sendall(
            f"GET /mqtt HTTP/1.1\r\nHost: {HOST}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Key: {key}\r\n"
            "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Protocol: mqtt\r\n\r\n".encode())
        one.recv(1000)
        one.sendall(b"\x82\xff" + (1 << 40).to_bytes(8, "big") + b"mask")


def wrong_passwords(cluster: Cluster) -> None:
    """Many clients with a wrong password at once; one with the right one is let in meanwhile."""
    guessers = []
    for number in range(100):
        guesser = Client(HOST, cluster.port, V5, timeout=30)
        guesser.send(w.connect(V5, f"guesser-{number}", username="anna", password=b"wrong"))
        guessers.append(guesser)
    joined(cluster, "anna", username="anna", password=b"right").drop()
    for guesser in guessers:
        guesser.drop()


def copies_for_many(cluster: Cluster) -> None:
    """A large message for many clients that do not read."""
    deaf = []
    for number in range(100):
        client = joined(cluster, f"many-{number}", clean=True)
        client.subscribe("many", qos=1)
        deaf.append(client)
    publisher = joined(cluster, "many-publisher", clean=True)
    for _ in range(3):
        publisher.publish("many", os.urandom(900_000), qos=1)
    for client in [*deaf, publisher]:
        client.drop()


ATTACKS: list[Callable[[Cluster], None]] = [
    half_requests, foreign_pages, cleared_topics, deaf_clients, long_names, garbage, wrong_passwords, copies_for_many]


class Witness:
    """Publishes numbers at the second node and reads them at the third."""

    def __init__(self, cluster: Cluster) -> None:
        self.sent, self.ends = 0, False
        self.came: set[int] = set()
        self.reader = Client(HOST, cluster.port + 2, V5, timeout=60)
        self.reader.connect("witness-reader", clean=False, props={"session_expiry_interval": 3600})
        self.reader.subscribe("witness", qos=1)
        self.writer = Client(HOST, cluster.port + 1, V5, timeout=60)
        self.writer.connect("witness-writer")
        self.threads = [threading.Thread(target=work, daemon=True) for work in (self.write, self.read)]
        for thread in self.threads:
            thread.start()

    def write(self) -> None:
        """Until it ends."""
        while not self.ends:
            self.writer.publish("witness", str(self.sent), qos=1)
            self.sent += 1
            time.sleep(0.01)  # the load
        self.writer.publish("witness", "end", qos=1)

    def read(self) -> None:
        """Until the last has come, which comes behind all others."""
        while True:
            packet = self.reader.expect(T.PUBLISH)
            self.reader.ack(T.PUBACK, packet.pid)
            if packet.payload == b"end":
                return
            self.came.add(int(packet.payload))

    def end(self) -> list[int]:
        """The numbers that are missing."""
        self.ends = True
        for thread in self.threads:
            thread.join(60)
        return sorted(set(range(self.sent)) - self.came)


def dropped(cluster: Cluster) -> list[str]:
    """Messages that each node counts as dropped, by cause."""
    return [f"node {node + 1}: {line}" for node in range(cluster.nodes)
            for line in get(f"http://{HOST}:{cluster.http + node}/metrics").splitlines()
            if line.startswith("sedge_dropped_messages_total") and not line.endswith(" 0")]


def main() -> int:
    """See the module."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--binary", type=Path, required=True)
    parser.add_argument("--seconds", type=int, default=3600)
    options = parser.parse_args()
    os.environ["SEDGE_CLUSTER__NAME"] = f"attack-{os.getpid()}"
    os.environ["SEDGE_LIMITS__MAX_BUFFERED_BYTES"] = str(32 << 20)
    with tempfile.TemporaryDirectory() as folder:
        passwords = Path(folder) / "passwords"
        subprocess.run([str(options.binary.resolve()), "passwd", "-cb", str(passwords), "anna", "right"], check=True)
        os.environ["SEDGE_AUTH__PASSWORD_FILE"], os.environ["SEDGE_AUTH__ANONYMOUS"] = str(passwords), "always"
        cluster = Cluster(options.binary.resolve(), Path(folder) / "data", 3)
        try:
            witness = Witness(cluster)
            start, rounds, first = time.monotonic(), 0, [0, 0, 0]
            while (spent := time.monotonic() - start) < options.seconds:
                for attack in ATTACKS:
                    attack(cluster)
                rounds += 1
                resident = [resident_kib(pid) for pid in cluster.pids]
                if spent < options.seconds / 4:
                    first = [max(pair) for pair in zip(first, resident)]
            missing = witness.end()
            resident = [resident_kib(pid) for pid in cluster.pids]
            grown = max(now - was for now, was in zip(resident, first))
            print(f"{rounds} rounds in {spent:.0f} s; resident {[kib // 1024 for kib in first]} MiB after a quarter, {[kib // 1024 for kib in resident]} at the end; "
                  f"{witness.sent} published beside, {len(missing)} missing; no node has ended")
            if missing:
                print(f"missing: {missing[:100]}", *dropped(cluster), cluster.output()[-20_000:], sep="\n")
            return int(bool(missing) or grown > ROOM_KIB)
        finally:
            cluster.stop()


if __name__ == "__main__":
    sys.exit(main())
