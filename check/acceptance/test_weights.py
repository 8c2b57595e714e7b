"""Limits of the memory that clients which do not read may hold, by the memory that the process really has."""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Callable
from contextlib import ExitStack

import mqttwire as w
from cluster import HOST, metric, resident_kib
from durable import Node
from mqttwire import V311
from test_floods import exactly, join

FULL = bool(os.environ.get("SEDGE_WEIGHTS"))  # with the numbers of docs/security.md, which take a while
CLIENTS = 900 if FULL else 150
LIMIT = (128 if FULL else 24) << 20
BESIDE = 64 << 20
"""Memory that the process may have beside `limits.max_buffered_bytes`, as docs/security.md says."""
MESSAGE = 1_000_000


def test_clients_that_do_not_read_hold_no_more_than_the_limit(make_node: Callable[..., Node]) -> None:
    """SEC: a message of 1 MB of its own for each of many clients that take nothing: resident memory stays below the limit and a constant."""
    node = make_node("memory", shards=1)
    node.stop()
    node.extra = f"[limits]\nmax_buffered_bytes = {LIMIT}\n"
    node.start()
    assert node.process
    empty = resident_kib(node.process.pid)
    with ExitStack() as stack:
        for number in range(CLIENTS):
            stack.enter_context(join(node.port, f"deaf-{number}", f"to/{number}", 1, buffer=4096))
        joined = resident_kib(node.process.pid)
        publisher = stack.enter_context(join(node.port, "publisher"))
        worst = 0
        for number in range(CLIENTS):
            publisher.sendall(w.publish(V311, f"to/{number}", os.urandom(MESSAGE), qos=1, pid=number + 1))
            assert exactly(publisher, 4)[0] == 0x40
            worst = max(worst, resident_kib(node.process.pid))
        held = metric(node.http, "sedge_buffered_bytes")
    print(f"\n{CLIENTS} clients: held {held / 2**20:.1f} of {LIMIT >> 20} MiB, resident {empty / 1024:.1f} MiB empty, {joined / 1024:.1f} joined, "
          f"{worst / 1024:.1f} at most", file=sys.stderr)
    assert worst * 1024 <= LIMIT + BESIDE


def test_sessions_that_come_back_and_do_not_read_hold_no_more_than_the_limit(make_node: Callable[..., Node]) -> None:
    """SEC: messages that waited for sessions are sent as their clients come back: they leave the queues, and memory stays below the limit and a constant."""
    node = make_node("memory", shards=1)
    node.stop()
    node.extra = f"[limits]\nmax_buffered_bytes = {LIMIT}\n"
    node.start()
    assert node.process
    for number in range(CLIENTS):
        client = node.client(f"away-{number}", V311)
        client.subscribe(f"to/{number}", qos=1)
        client.drop()
    with ExitStack() as stack:
        publisher = stack.enter_context(join(node.port, "publisher"))
        for number in range(CLIENTS):
            publisher.sendall(w.publish(V311, f"to/{number}", os.urandom(MESSAGE), qos=1, pid=number + 1))
            assert exactly(publisher, 4)[0] == 0x40
        waiting, queued = resident_kib(node.process.pid), metric(node.http, "sedge_queued_bytes")
        assert queued > LIMIT / 2, "the queues are full"
        worst = waiting
        for number in range(CLIENTS):
            client = stack.enter_context(socket.socket())
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            client.settimeout(30)
            client.connect((HOST, node.port))
            client.sendall(w.connect(V311, f"away-{number}", clean=False, keepalive=0))
            assert exactly(client, 4) == bytes([0x20, 2, 1, 0])
            worst = max(worst, resident_kib(node.process.pid))
        assert metric(node.http, "sedge_queued_bytes") < queued, "it is on its way"
    print(f"\n{CLIENTS} sessions: resident {waiting / 1024:.1f} MiB while they were away, {worst / 1024:.1f} at most when they came back", file=sys.stderr)
    assert worst * 1024 <= LIMIT + BESIDE
