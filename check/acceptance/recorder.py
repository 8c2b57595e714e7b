"""A wire between a node and its broker that notes every packet, and can hold packets back."""

from __future__ import annotations

import itertools
import json
import socket
import subprocess
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cluster import HOST
from mqttwire import T, split

PARSER = Path(__file__).parent / "js/parse.mjs"


@dataclass(frozen=True)
class Noted:
    """One packet: over which connection it passed, and whether the node sent it."""

    connection: int
    from_node: bool
    raw: bytes

    @property
    def type(self) -> T:
        """Its type."""
        return T(self.raw[0] >> 4)


class Recorder:
    """Carries connections to a broker packet by packet."""

    def __init__(self, to: int) -> None:
        self.target = to
        self.socket = socket.create_server((HOST, 0))
        self.port = self.socket.getsockname()[1]
        self.packets: list[Noted] = []
        self.ended: set[int] = set()
        # Which packets do not pass, until `release` is called.
        self.holds: Callable[[Noted], bool] = lambda _: False
        self._released = threading.Condition()
        self._numbers = itertools.count()
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self.socket.accept()
                far = socket.create_connection((HOST, self.target), timeout=10)
            except OSError:
                return
            far.settimeout(None)
            number = next(self._numbers)
            for ends, from_node in (((near, far), True), ((far, near), False)):
                threading.Thread(target=self._carry, args=(number, *ends, from_node), daemon=True).start()

    def _carry(self, number: int, source: socket.socket, target: socket.socket, from_node: bool) -> None:
        buffer = b""
        try:
            while data := source.recv(65536):
                buffer += data
                while sizes := split(buffer):
                    raw, buffer = buffer[: sizes[1]], buffer[sizes[1] :]
                    self._pass(number, target, from_node, raw)
        except OSError:
            pass
        self.ended.add(number)
        for end in (source, target):
            end.close()

    def _pass(self, number: int, target: socket.socket, from_node: bool, raw: bytes) -> None:
        with self._released:
            noted = Noted(number, from_node, raw)
            self.packets.append(noted)
            while self.holds(noted):
                self._released.wait()
            target.sendall(raw)

    def release(self) -> None:
        """Lets everything pass again."""
        with self._released:
            self.holds = lambda _: False
            self._released.notify_all()

    def conversations(self) -> dict[str, list[tuple[Noted, dict[str, Any]]]]:
        """The packets of each client identifier in their order, as the parser of MQTT.js reads them; a packet that it refuses fails."""
        with self._released:
            packets = list(self.packets)
        lines = "".join(json.dumps({"connection": one.connection, "from": one.from_node, "hex": one.raw.hex()}) + "\n" for one in packets)
        done = subprocess.run(["node", str(PARSER)], input=lines, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 0, done.stderr
        read = [json.loads(line) for line in done.stdout.splitlines()]
        assert len(read) == len(packets)
        names = {noted.connection: fields["clientId"] for noted, fields in zip(packets, read, strict=True) if fields["cmd"] == "connect"}
        found: dict[str, list[tuple[Noted, dict[str, Any]]]] = {}
        for noted, fields in zip(packets, read, strict=True):
            found.setdefault(names[noted.connection], []).append((noted, fields))
        return found

    def close(self) -> None:
        """Listens no more."""
        self.release()
        self.socket.close()
