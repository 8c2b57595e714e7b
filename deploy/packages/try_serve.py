#!/usr/bin/env python3
"""Starts a node and has Mosquitto's clients talk over it: a message of QoS 1 and a retained one arrive, and the node ends by itself on SIGTERM.

Usage: deploy/packages/try_serve.py PROGRAM [ARGUMENT ...]      the program may be an emulator with `sedge` as its first argument
"""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import time

PATIENCE = 60.0


def line_of(process: subprocess.Popen[str]) -> str:
    """The next line that a process prints, in time."""
    ready, _, _ = select.select([process.stdout], [], [], PATIENCE)
    if not ready:
        raise SystemExit(f"{process.args}: says nothing for {PATIENCE:.0f} s")
    return process.stdout.readline()  # type: ignore[union-attr]


def publish(port: int, topic: str, payload: str, *more: str) -> None:
    """Publishes with QoS 1, acknowledged."""
    command = ["mosquitto_pub", "-h", "127.0.0.1", "-p", str(port), "-q", "1", "-t", topic, "-m", payload, *more]
    subprocess.run(command, check=True, timeout=PATIENCE)


def subscribe(port: int, topic: str) -> subprocess.Popen[str]:
    """Starts a subscriber for one message."""
    command = ["mosquitto_sub", "-h", "127.0.0.1", "-p", str(port), "-q", "1", "-t", topic, "-C", "2", "-F", "%t %p", "-W", f"{PATIENCE:.0f}"]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def talk(port: int) -> None:
    """The retained message says that the subscription is there; then the live one has to come."""
    publish(port, "try/retained", "kept", "-r")
    subscriber = subscribe(port, "try/#")
    try:
        first = line_of(subscriber)
        publish(port, "try/live", "now")
        second = line_of(subscriber)
    finally:
        subscriber.terminate()
        subscriber.wait(PATIENCE)
    if [first, second] != ["try/retained kept\n", "try/live now\n"]:
        raise SystemExit(f"a subscriber has got {[first, second]}")


def main() -> None:
    """Starts the node and ends it, whatever comes."""
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    with tempfile.TemporaryDirectory() as folder:
        flags = ["--bind", "127.0.0.1", "--port", "0", "--cluster-port", "0", "--http-port", "0", "--data-dir", f"{folder}/data", "--json"]
        env = os.environ | {"SEDGE_CLUSTER__BIND": "127.0.0.1", "SEDGE_LOG__LEVEL": "warn"}
        started = time.monotonic()
        node = subprocess.Popen([*sys.argv[1:], "serve", *flags], stdout=subprocess.PIPE, text=True, env=env)
        try:
            said = json.loads(line_of(node))
            ready = time.monotonic() - started
            talk(int(said["mqtt"][0].rsplit(":", 1)[-1]))
            node.send_signal(signal.SIGTERM)
            if node.wait(PATIENCE) != 0:
                raise SystemExit(f"the node ends with {node.returncode}")
        finally:
            node.kill()
            node.wait()
    print(f"listens after {ready:.2f} s, delivers, stops: {' '.join(sys.argv[1:])}")


if __name__ == "__main__":
    main()
