"""The traffic of the loopback device, as a capture tool would see it."""

from __future__ import annotations

import socket
import struct
import threading
from collections import defaultdict
from typing import NamedTuple

import mqttwire as w
from mqttwire import V5, T

ETH_P_IP = 0x0800
SYN = 2


class Seen(NamedTuple):
    """A packet of a link: by whom it was sent, as (port of the dialler, port of the acceptor, by the dialler), and its bytes."""

    dialler: int
    acceptor: int
    by_dialler: bool
    raw: bytes

    @property
    def type(self) -> T:
        """Its type."""
        return T(self.raw[0] >> 4)

    def publish(self) -> w.Packet:
        """Taken apart."""
        return w.parse(V5, self.raw)


class Capture:
    """Records TCP connections over loopback to these ports from its start on; only those that begin after it are read."""

    def __init__(self, ports: list[int]) -> None:
        self.ports = set(ports)
        self.first: dict[tuple[int, int], int] = {}
        self.segments: dict[tuple[int, int], dict[int, bytes]] = defaultdict(dict)
        self.socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETH_P_IP))
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 64 << 20)
        self.socket.bind(("lo", ETH_P_IP))
        self.socket.settimeout(0.1)
        self.over = threading.Event()
        self.thread = threading.Thread(target=self._record)
        self.thread.start()

    def __enter__(self) -> Capture:
        return self

    def __exit__(self, *_: object) -> None:
        self.over.set()
        self.thread.join()
        self.socket.close()

    def _record(self) -> None:
        while not self.over.is_set():
            try:
                self._take(self.socket.recv(1 << 17))
            except TimeoutError:
                continue

    def _take(self, frame: bytes) -> None:
        ip = frame[14:]
        if ip[9] != socket.IPPROTO_TCP:
            return
        tcp = ip[(ip[0] & 15) * 4 : struct.unpack_from(">H", ip, 2)[0]]
        source, target, number = struct.unpack_from(">HHI", tcp)
        if self.ports.isdisjoint((source, target)):
            return
        if tcp[13] & SYN:
            self.first[source, target] = number + 1
        data = tcp[(tcp[12] >> 4) * 4 :]
        if data:
            self.segments[source, target][number] = data

    def packets(self) -> list[Seen]:
        """All whole packets so far, each direction of each connection in order."""
        found = []
        for (source, target), first in list(self.first.items()):
            stream = self._stream(source, target, first)
            by_dialler = target in self.ports
            dialler, acceptor = (source, target) if by_dialler else (target, source)
            while stream and (sizes := w.split(stream)) is not None:
                found.append(Seen(dialler, acceptor, by_dialler, bytes(stream[: sizes[1]])))
                del stream[: sizes[1]]
        return found

    def _stream(self, source: int, target: int, first: int) -> bytearray:
        """The bytes of one direction up to the first that is missing."""
        stream = bytearray()
        segments = {(number - first) % (1 << 32): data for number, data in list(self.segments[source, target].items())}
        for at, data in sorted(segments.items()):
            if at > len(stream):
                break
            stream += data[len(stream) - at :]
        return stream
