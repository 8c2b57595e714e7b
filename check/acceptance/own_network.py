"""A network namespace for tests, in which no interface comes or goes."""

from __future__ import annotations

import contextlib
import ctypes
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

CLONE_NEWNET = 0x4000_0000
# An address besides loopback, of those for documentation (RFC 5737).
COMMANDS = ("link set lo up", "link add eth0 type veth peer name other", "addr add 192.0.2.1/24 dev eth0", "link set eth0 up", "link set other up")


@contextlib.contextmanager
def own_network() -> Iterator[None]:
    """Moves this thread, and all that it starts, into a namespace of their own until the end of the block."""
    libc = ctypes.CDLL(None, use_errno=True)

    def check(result: int) -> None:
        if result != 0:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))

    with Path("/proc/thread-self/ns/net").open("rb") as before:
        check(libc.unshare(CLONE_NEWNET))
        try:
            for command in COMMANDS:
                subprocess.run(["ip", *command.split()], check=True, capture_output=True)
            yield
        finally:
            check(libc.setns(before.fileno(), CLONE_NEWNET))
