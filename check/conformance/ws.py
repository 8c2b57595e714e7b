"""MQTT over WebSocket: a socket-like object that puts bytes into binary frames and takes them out again."""

from __future__ import annotations

import base64
import os
import socket
import struct


class WsSocket:
    """Just enough of RFC 6455 for tests; looks like a socket to `Client`."""

    def __init__(self, host: str, port: int, path: str = "/mqtt", timeout: float = 5) -> None:
        self.sock = socket.create_connection((host, port), timeout=timeout)
        self.buffer = bytearray()
        key = base64.b64encode(os.urandom(16)).decode()
        lines = [
            f"GET {path} HTTP/1.1", f"Host: {host}:{port}", "Upgrade: websocket", "Connection: Upgrade",
            f"Sec-WebSocket-Key: {key}", "Sec-WebSocket-Version: 13", "Sec-WebSocket-Protocol: mqtt", "", "",
        ]
        self.sock.sendall("\r\n".join(lines).encode())
        while b"\r\n\r\n" not in self.buffer:
            data = self.sock.recv(4096)
            if not data:
                raise ConnectionResetError("closed during the WebSocket handshake")
            self.buffer += data
        head, _, rest = bytes(self.buffer).partition(b"\r\n\r\n")
        self.buffer = bytearray(rest)
        self.status = head.split(b"\r\n")[0].decode()
        pairs = (line.decode().partition(":") for line in head.split(b"\r\n")[1:])
        self.headers = {name.strip().lower(): value.strip() for name, _, value in pairs}

    def send_frame(self, data: bytes, opcode: int = 2) -> None:
        """One masked frame."""
        mask = os.urandom(4)
        if len(data) < 126:
            size = bytes([0x80 | len(data)])
        elif len(data) < 65536:
            size = b"\xfe" + struct.pack(">H", len(data))
        else:
            size = b"\xff" + struct.pack(">Q", len(data))
        body = bytes(byte ^ mask[index % 4] for index, byte in enumerate(data))
        self.sock.sendall(bytes([0x80 | opcode]) + size + mask + body)

    def sendall(self, data: bytes) -> None:
        """All bytes in one frame."""
        self.send_frame(data)

    def recv(self, _size: int) -> bytes:
        """Content of the next data frame; empty at the end of the connection."""
        while True:
            opcode, data = self._frame()
            if opcode == 8:
                return b""
            if opcode == 1:
                raise AssertionError("the broker sent a text frame")
            if opcode in (0, 2) and data:
                return data

    def _frame(self) -> tuple[int, bytes]:
        head = self._peek(2)
        if len(head) < 2:
            return 8, b""
        assert not head[1] & 0x80, "the broker masked a frame"
        extra = {126: 2, 127: 8}.get(head[1] & 0x7F, 0)
        start = self._peek(2 + extra)
        length = int.from_bytes(start[2:], "big") if extra else head[1] & 0x7F
        whole = self._peek(2 + extra + length)
        del self.buffer[: 2 + extra + length]
        return head[0] & 15, whole[2 + extra :]

    def _peek(self, count: int) -> bytes:
        while len(self.buffer) < count:
            data = self.sock.recv(65536)
            if not data:
                return b""
            self.buffer += data
        return bytes(self.buffer[:count])

    def settimeout(self, seconds: float) -> None:
        """Time limit for single operations."""
        self.sock.settimeout(seconds)

    def shutdown(self, how: int) -> None:
        """Ends the sending side."""
        self.sock.shutdown(how)

    def close(self) -> None:
        """Drops the connection."""
        self.sock.close()
