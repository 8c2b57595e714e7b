"""Faults of a network path: a TCP proxy that has them, and a host whose packets are lost."""

from __future__ import annotations

import os
import select
import socket
import struct
import subprocess
import threading
import time

from cluster import HOST
from netns import NUMBERS, ip

# How long each outage lasts.
SECONDS = float(os.environ.get("SEDGE_OUTAGE_SECONDS", "3"))


class Proxy:
    """Carries connections to a port of this machine, well or badly."""

    def __init__(self, port: int, to: int, host: str = HOST) -> None:
        self.port, self.target = port, (host, to)
        self.mode = "pass"
        # Bytes a second that each connection carries, in mode "narrow".
        self.rate = 0
        self.resets = 0
        self._pairs: list[tuple[socket.socket, socket.socket]] = []
        self._lock = threading.Lock()
        self._listener: socket.socket | None = None
        self.listen()

    def listen(self) -> None:
        """Takes connections."""
        listener = socket.create_server((HOST, self.port))
        self._listener = listener
        threading.Thread(target=self._accept, args=(listener,), daemon=True).start()

    def refuse(self) -> None:
        """New connections are refused, and open ones are reset."""
        if self._listener:
            self._listener.shutdown(socket.SHUT_RDWR)
            self._listener.close()
            self._listener = None
        self.reset()

    def reset(self) -> None:
        """Resets all connections."""
        with self._lock:
            pairs, self._pairs = self._pairs, []
        for pair in pairs:
            self._reset(pair)

    def _reset(self, pair: tuple[socket.socket, socket.socket]) -> None:
        self.resets += 1
        for sock in pair:
            try:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                # A thread that waits for it would keep it open.
                sock.shutdown(socket.SHUT_RD)
            except OSError:
                pass
            sock.close()

    def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                near, _ = listener.accept()
            except OSError:
                if listener.fileno() < 0:
                    return
                continue
            try:
                far = socket.create_connection(self.target, timeout=10)
            except OSError:
                near.close()
                continue
            with self._lock:
                self._pairs.append((near, far))
            threading.Thread(target=self._carry, args=((near, far),), daemon=True).start()

    def _carry(self, pair: tuple[socket.socket, socket.socket]) -> None:
        other = {pair[0]: pair[1], pair[1]: pair[0]}
        carried = 0
        try:
            while True:
                ready, _, _ = select.select(pair, [], [], 0.2)
                if self.mode == "trickle":
                    time.sleep(1)  # one byte a second is what this is
                for sock in ready:
                    if self.mode == "narrow":
                        time.sleep(4096 / self.rate)  # the pace of this path
                    data = sock.recv(1 if self.mode == "trickle" else 4096)
                    if not data:
                        return
                    carried += len(data)
                    if self.mode == "cut" and carried > 3000:
                        # Half of the bytes that were read goes on: the packet in which they end is never whole.
                        other[sock].sendall(data[: len(data) // 2])
                        self._reset(pair)
                        return
                    other[sock].sendall(data)
        except (OSError, ValueError):
            pass
        finally:
            with self._lock:
                if pair in self._pairs:
                    self._pairs.remove(pair)
            for sock in pair:
                sock.close()

    def close(self) -> None:
        """Ends it."""
        self.refuse()


class Far:
    """A network namespace at the other end of a wire, as a host elsewhere would be; its packets can be lost."""

    def __init__(self) -> None:
        number = next(NUMBERS)
        tag = f"s{os.getpid() % 100_000}f{number}"
        self.space, self.outer = f"{tag}n", f"{tag}v"
        net = f"10.{150 + os.getpid() % 40}.{(os.getpid() // 40 + number) % 250}"
        self.near, self.address = f"{net}.1", f"{net}.2"
        ip("netns", "add", self.space)
        ip("link", "add", self.outer, "type", "veth", "peer", "name", "eth0", "netns", self.space)
        ip("link", "set", self.outer, "up")
        ip("addr", "add", f"{self.near}/24", "dev", self.outer)
        ip("-n", self.space, "link", "set", "lo", "up")
        ip("-n", self.space, "link", "set", "eth0", "up")
        ip("-n", self.space, "addr", "add", f"{self.address}/24", "dev", "eth0")

    def lose(self) -> None:
        """Nothing that the host sends arrives, acknowledgements of TCP included; nobody is told."""
        ip("-n", self.space, "route", "add", "blackhole", f"{self.near}/32")

    def heal(self) -> None:
        """Undoes `lose`."""
        ip("-n", self.space, "route", "del", "blackhole", f"{self.near}/32")

    def remove(self) -> None:
        """Takes it down."""
        subprocess.run(["ip", "netns", "del", self.space], capture_output=True, check=False)
        subprocess.run(["ip", "link", "del", self.outer], capture_output=True, check=False)
