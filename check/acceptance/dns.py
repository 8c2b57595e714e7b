"""A DNS server (RFC 1035) with the records that a test gives it, and namespaces whose resolver asks it."""

from __future__ import annotations

import shutil
import socket
import socketserver
import struct
import threading
from pathlib import Path

from netns import Islands

A, AAAA, SRV = 1, 28, 33
IN = 1
NXDOMAIN = 3
TRUNCATED = 0x0200


def encoded(name: str) -> bytes:
    """A name as it stands in packets."""
    return b"".join(bytes([len(label)]) + label.encode() for label in name.split(".")) + b"\0"


class Records:
    """The records of the server; may be changed at any time."""

    def __init__(self) -> None:
        self.hosts: dict[str, list[str]] = {}
        self.services: dict[str, list[tuple[str, int]]] = {}
        self.asked_by_tcp = 0

    def answer(self, query: bytes, is_tcp: bool) -> bytes:
        """Answers to datagrams about services are cut off, so that everybody has to come by TCP."""
        number, _, questions = struct.unpack_from("!HHH", query)
        assert questions == 1, query
        labels, at = [], 12
        while query[at]:
            labels.append(query[at + 1:at + 1 + query[at]].decode().lower())
            at += 1 + query[at]
        name, (kind, _) = ".".join(labels), struct.unpack_from("!HH", query, at + 1)
        question = query[12:at + 5]
        found = []
        for one in self.hosts.get(name, []):
            family = socket.AF_INET6 if ":" in one else socket.AF_INET
            if kind == (AAAA if family == socket.AF_INET6 else A):
                found.append(socket.inet_pton(family, one))
        if kind == SRV:
            found = [struct.pack("!HHH", 10, 5, port) + encoded(target) for target, port in self.services.get(name, [])]
            self.asked_by_tcp += is_tcp
        known = name in self.hosts or name in self.services
        flags = 0x8180 | (0 if known else NXDOMAIN)
        if kind == SRV and found and not is_tcp:
            flags, found = flags | TRUNCATED, []
        records = b"".join(b"\xc0\x0c" + struct.pack("!HHIH", kind, IN, 0, len(data)) + data for data in found)
        return struct.pack("!HHHHHH", number, flags, 1, len(found), 0, 0) + question + records


class Server:
    """Answers on port 53 of an address until it is closed."""

    def __init__(self, address: str) -> None:
        records = self.records = Records()

        class Datagram(socketserver.BaseRequestHandler):
            def handle(self) -> None:
                query, sock = self.request
                sock.sendto(records.answer(query, False), self.client_address)

        class Stream(socketserver.StreamRequestHandler):
            def handle(self) -> None:
                (length,) = struct.unpack("!H", self.rfile.read(2))
                answer = records.answer(self.rfile.read(length), True)
                self.wfile.write(struct.pack("!H", len(answer)) + answer)

        socketserver.TCPServer.allow_reuse_address = True
        self.servers = [socketserver.UDPServer((address, 53), Datagram), socketserver.TCPServer((address, 53), Stream)]
        for server in self.servers:
            threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()

    def close(self) -> None:
        """No more answers."""
        for server in self.servers:
            server.shutdown()
            server.server_close()


class Resolving(Islands):
    """Islands whose resolver asks a server of this process."""

    def _wire_up(self) -> None:
        super()._wire_up()
        self.dns = Server(f"{self.net}.254")
        for node in range(self.count):
            self._etc(node).mkdir(parents=True)
            (self._etc(node) / "resolv.conf").write_text(f"nameserver {self.net}.254\noptions timeout:1 attempts:2\n")
        self.prepare()

    def _etc(self, node: int) -> Path:
        """The folder that `ip netns exec` lays over /etc."""
        return Path("/etc/netns") / f"{self.tag}n{node}"

    def prepare(self) -> None:
        """Records that are there before the nodes start."""

    def stop(self) -> None:
        """Also takes the server and the resolvers' settings away."""
        try:
            super().stop()
        finally:
            if hasattr(self, "dns"):
                self.dns.close()
            for node in range(self.count):
                shutil.rmtree(self._etc(node), ignore_errors=True)
