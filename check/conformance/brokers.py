"""Starting brokers for a run and knowing when they are ready."""

from __future__ import annotations

import random
import socket
import subprocess
import time

import mqttwire as w
from client import Client
from mqttwire import V311


def free_port() -> int:
    """A free loopback port below the range that the system hands out to clients."""
    for _ in range(200):
        port = random.SystemRandom().randrange(20000, 32000)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise RuntimeError("no free port below 32768")


def free_ports(count: int) -> int:
    """The first of `count` free ports in a row."""
    for _ in range(200):
        first = free_port()
        if all(_is_free(first + offset) for offset in range(count)):
            return first
    raise RuntimeError(f"no {count} free ports in a row")


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def wait_ready(host: str, port: int, process: subprocess.Popen[bytes] | None = None, seconds: float = 30) -> None:
    """Waits until a CONNECT at this port is accepted."""
    deadline = time.monotonic() + seconds
    while True:
        if process is not None and process.poll() is not None:
            raise RuntimeError(f"broker ended with status {process.returncode} before it was ready")
        try:
            client = Client(host, port, V311, timeout=1)
            client.connect(f"ready{port}")
            client.send(w.disconnect(V311))
            client.close()
            return
        except (OSError, AssertionError) as error:
            if time.monotonic() > deadline:
                raise RuntimeError(f"no CONNACK from {host}:{port} within {seconds} s: {error}") from error
            time.sleep(0.02)  # pause between two attempts, bounded by the deadline
