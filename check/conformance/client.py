"""A raw, blocking MQTT client: every byte and every acknowledgement is under the control of the test.

Packets that arrive while a test waits for another kind stay in the inbox, since the standard leaves the order of, say,
a SUBACK and a retained PUBLISH open. Nothing is acknowledged unless the test asks for it. Every wait has a deadline.
"""

from __future__ import annotations

import itertools
import socket
import time
from collections import deque
from collections.abc import Callable
from typing import Any

import mqttwire as w
from mqttwire import V5, Packet, T

DEFAULT_TIMEOUT = 5.0
PROBE_AFTER = 0.15


class ClientError(AssertionError):
    """An event that the test waited for did not come."""


class Client:
    """One network connection to the broker."""

    def __init__(
        self, host: str, port: int, version: int, timeout: float = DEFAULT_TIMEOUT, *, sock: Any = None
    ) -> None:
        self.version, self.timeout, self.port = version, timeout, port
        self.sock = sock or socket.create_connection((host, port), timeout=timeout)
        if sock is None:
            self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.inbox: deque[Packet] = deque()
        self.connack: Packet | None = None
        self.client_id = ""
        self.on_publish: Callable[..., None] = lambda *_: None
        self._buffer = bytearray()
        self._pids = itertools.cycle(range(1, 65536))
        self._closed = False
        self._first_seen = False

    # --- sending ---

    def send(self, data: bytes) -> None:
        """Sends raw bytes; a connection already closed by the peer is noticed when reading."""
        try:
            self.sock.settimeout(self.timeout)
            self.sock.sendall(data)
        except (BrokenPipeError, ConnectionResetError):
            pass

    def next_pid(self) -> int:
        """A packet identifier not used lately."""
        return next(self._pids)

    def connect(self, client_id: str, **options: Any) -> Packet:
        """CONNECT, accepted with code 0."""
        got = self.try_connect(client_id, **options)
        if got.reason:
            raise ClientError(f"CONNECT of {client_id!r} refused with 0x{got.reason:02x}")
        return got

    def try_connect(self, client_id: str, **options: Any) -> Packet:
        """CONNECT; returns the CONNACK whatever its code."""
        self.client_id = client_id
        self.send(w.connect(self.version, client_id, **options))
        self.connack = self.expect(T.CONNACK)
        return self.connack

    def publish(
        self, topic: str, payload: bytes | str = b"", *, qos: int = 0, retain: bool = False,
        props: dict[str, Any] | None = None, allowed: tuple[int, ...] = (0x00, 0x10),
    ) -> int:
        """PUBLISH and its whole handshake; returns the packet id."""
        pid = self.start_publish(topic, payload, qos=qos, retain=retain, props=props)
        if qos == 1:
            reply = self.expect(T.PUBACK, pid=pid)
        elif qos == 2:
            reply = self.expect(T.PUBREC, pid=pid)
        else:
            return pid
        if reply.reason not in allowed:
            raise ClientError(f"PUBLISH to {topic!r} answered with reason 0x{reply.reason:02x}")
        if qos == 2 and reply.reason < 0x80:
            self.release(pid)
        return pid

    def start_publish(
        self, topic: str, payload: bytes | str = b"", *, qos: int = 0, retain: bool = False, dup: bool = False,
        pid: int | None = None, props: dict[str, Any] | None = None,
    ) -> int:
        """PUBLISH without waiting for any answer; returns the packet id."""
        data = payload.encode() if isinstance(payload, str) else payload
        number = (self.next_pid() if pid is None else pid) if qos else 0
        self.on_publish(topic, retain)
        self.send(w.publish(self.version, topic, data, qos=qos, retain=retain, dup=dup, pid=number, props=props))
        return number

    def release(self, pid: int) -> Packet:
        """PUBREL and its PUBCOMP."""
        self.ack(T.PUBREL, pid)
        return self.expect(T.PUBCOMP, pid=pid)

    def ack(self, kind: T, pid: int, reason: int = 0, props: dict[str, Any] | None = None) -> None:
        """Sends PUBACK, PUBREC, PUBREL or PUBCOMP."""
        self.send(w.ack(self.version, kind, pid, reason, props))

    def subscribe(self, *filters: str | tuple[str, int], qos: int = 0, props: dict[str, Any] | None = None) -> Packet:
        """SUBSCRIBE, granted for every filter; a filter is a name (with `qos`) or (name, options byte)."""
        got = self.try_subscribe(*filters, qos=qos, props=props)
        if any(code >= 0x80 for code in got.reasons):
            raise ClientError(f"SUBSCRIBE {filters} answered with {bytes(got.reasons).hex(' ')}")
        return got

    def try_subscribe(
        self, *filters: str | tuple[str, int], qos: int = 0, props: dict[str, Any] | None = None
    ) -> Packet:
        """SUBSCRIBE; returns the SUBACK whatever its codes."""
        pairs = [(one, qos) if isinstance(one, str) else one for one in filters]
        pid = self.next_pid()
        self.send(w.subscribe(self.version, pid, pairs, props))
        return self.expect(T.SUBACK, pid=pid)

    def unsubscribe(self, *filters: str, props: dict[str, Any] | None = None) -> Packet:
        """UNSUBSCRIBE and its UNSUBACK."""
        pid = self.next_pid()
        self.send(w.unsubscribe(self.version, pid, list(filters), props))
        return self.expect(T.UNSUBACK, pid=pid)

    def disconnect(self, reason: int = 0, props: dict[str, Any] | None = None) -> None:
        """DISCONNECT, then waits for the broker to have taken it before closing."""
        self.send(w.disconnect(self.version, reason, props))
        try:
            self.sock.shutdown(socket.SHUT_WR)
            self.read_until_closed()
        except (OSError, ClientError):
            pass
        self.close()

    def close(self) -> None:
        """Drops the connection without DISCONNECT."""
        self._closed = True
        self.sock.close()

    def drop(self) -> None:
        """Ends the connection without DISCONNECT, and waits for the broker to have noticed: messages that come now have to wait."""
        self.sock.shutdown(socket.SHUT_WR)
        self.read_until_closed()
        self.close()

    # --- receiving ---

    def _read(self, deadline: float) -> Packet | None:
        """The next packet, or None when the connection is closed; raises when the deadline passes."""
        while True:
            sizes = w.split(self._buffer)
            if sizes:
                raw = bytes(self._buffer[: sizes[1]])
                del self._buffer[: sizes[1]]
                return self._checked(w.parse(self.version, raw))
            if self._closed:
                return None
            self.sock.settimeout(max(0.001, deadline - time.monotonic()))
            try:
                data = self.sock.recv(65536)
            except (TimeoutError, BlockingIOError):
                if time.monotonic() < deadline:
                    continue
                raise ClientError(self._describe("deadline passed")) from None
            except (ConnectionResetError, BrokenPipeError):
                data = b""
            self._closed = not data
            self._buffer += data

    def _checked(self, got: Packet) -> Packet:
        """Rules for every packet of a server: CONNACK first and only once."""
        if not self._first_seen and got.type not in (T.CONNACK, T.AUTH):
            raise w.WireError(f"first packet from the server is {got.type.name}")
        if self._first_seen and got.type == T.CONNACK:
            raise w.WireError("second CONNACK on one connection")
        self._first_seen = self._first_seen or got.type == T.CONNACK
        return got

    def _describe(self, what: str) -> str:
        waiting = ", ".join(f"{p.type.name}({p.topic or p.pid})" for p in itertools.islice(self.inbox, 10))
        return f"{what}; inbox: [{waiting}]; unread: {bytes(self._buffer[:40]).hex(' ')}"

    def expect(self, kind: T, timeout: float | None = None, **fields: Any) -> Packet:
        """Waits for the first packet of this kind (others wait in the inbox) and checks the given fields."""
        got = self._find(kind, timeout)
        for name, wanted in fields.items():
            actual = getattr(got, name)
            assert actual == wanted, f"{kind.name}.{name} is {actual!r}, expected {wanted!r}"
        return got

    def _find(self, kind: T, timeout: float | None) -> Packet:
        for index, got in enumerate(self.inbox):
            if got.type == kind:
                del self.inbox[index]
                return got
        deadline = time.monotonic() + (timeout or self.timeout)
        while True:
            try:
                one = self._read(deadline)
            except ClientError as error:
                raise ClientError(f"waiting for {kind.name}: {error}") from None
            if one is None:
                raise ClientError(self._describe(f"connection closed while waiting for {kind.name}"))
            if one.type == kind:
                return one
            if one.type == T.DISCONNECT:
                raise ClientError(f"DISCONNECT 0x{one.reason:02x} while waiting for {kind.name}")
            self.inbox.append(one)

    def message(self, payload: bytes | str | None = None, *, timeout: float | None = None, **fields: Any) -> Packet:
        """Waits for a PUBLISH, acknowledges it as its QoS asks, and checks payload and fields."""
        got = self.expect(T.PUBLISH, timeout)
        self.finish(got)
        if payload is not None:
            fields["payload"] = payload.encode() if isinstance(payload, str) else payload
        for name, wanted in fields.items():
            actual = getattr(got, name)
            assert actual == wanted, f"PUBLISH.{name} is {actual!r}, expected {wanted!r}"
        return got

    def finish(self, got: Packet) -> None:
        """Acknowledges a received PUBLISH to the end of its handshake."""
        if got.qos == 1:
            self.ack(T.PUBACK, got.pid)
        elif got.qos == 2:
            self.ack(T.PUBREC, got.pid)
            self.expect(T.PUBREL, pid=got.pid)
            self.ack(T.PUBCOMP, got.pid)

    def ping(self) -> None:
        """PINGREQ and its PINGRESP: whatever the broker sent before is in the inbox afterwards."""
        self.send(w.PINGREQ)
        self.expect(T.PINGRESP)

    def rest(self, seconds: float) -> None:
        """Lets real time pass (only for timed tests), with a ping in every half second."""
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            time.sleep(min(0.5, left))
            self.ping()

    def nothing(self, kind: T = T.PUBLISH) -> None:
        """After a ping round trip no packet of this kind has arrived."""
        self.ping()
        found = [got for got in self.inbox if got.type == kind]
        assert not found, f"unexpected {kind.name}: {found}"

    def read_until_closed(self, timeout: float | None = None, *, probe: bool = False) -> list[Packet]:
        """Waits for the broker to close; returns the packets that it sent before, oldest first.

        With `probe`, a connection still open after a moment gets a PINGREQ: an answer shows at once that the broker
        has no intention to close it.
        """
        limit = time.monotonic() + (timeout or self.timeout)
        deadline = min(limit, time.monotonic() + PROBE_AFTER) if probe and self.connack else limit
        got = list(self.inbox)
        self.inbox.clear()
        while True:
            try:
                one = self._read(deadline)
            except ClientError:
                if deadline >= limit:
                    raise ClientError(f"connection still open; received {[p.type.name for p in got]}") from None
                self.send(w.PINGREQ)
                deadline = limit
                continue
            if one is None:
                return got
            if probe and (one.type == T.PINGRESP or one.type == T.CONNACK and not one.reason):
                raise ClientError(f"connection still in use; received {[p.type.name for p in got]}")
            got.append(one)

    def read_raw_until_closed(self) -> bytes:
        """All bytes until the broker closes, not parsed: for answers in a version that is not known."""
        self.sock.settimeout(self.timeout)
        while not self._closed:
            try:
                data = self.sock.recv(65536)
            except ConnectionResetError:
                data = b""
            except TimeoutError:
                raise ClientError(f"connection still open; received {self._buffer.hex(' ')}") from None
            self._closed = not data
            self._buffer += data
        return bytes(self._buffer)

    def read_until(self, kind: T) -> Packet | None:
        """The first packet of this kind, or None when the broker closes instead; others wait in the inbox."""
        deadline = time.monotonic() + self.timeout
        while True:
            got = self._read(deadline)
            if got is None or got.type == kind:
                return got
            self.inbox.append(got)

    def expect_closed(
        self, *reasons: int, timeout: float | None = None, must_say: bool = False, patient: bool = False
    ) -> list[Packet]:
        """The broker closes; a CONNACK or DISCONNECT before it carries one of `reasons` (any error if none given).

        With `must_say` such a packet has to come; `patient` is for a close that another node of a cluster asks for,
        before which this one may still answer. Nothing may follow a DISCONNECT. Returns what came before.
        """
        got = self.read_until_closed(timeout, probe=not patient)
        said = [one for one in got if one.type in (T.CONNACK, T.DISCONNECT)]
        for one in said:
            fine = one.reason in reasons if reasons else one.reason >= (0x80 if self.is_v5() else 1)
            assert fine, f"{one.type.name} with 0x{one.reason:02x}, allowed {[hex(r) for r in reasons]}"
        assert not said or got[-1] is said[-1], "packets after DISCONNECT"
        assert said or not must_say, f"closed without a reason code, expected one of {[hex(r) for r in reasons]}"
        return got

    def window(self, wanted: int) -> int:
        """How many messages of QoS 1 and 2 may be under way to the broker, at most `wanted`."""
        allowed = self.connack.props.get("receive_maximum", 65535) if self.connack else wanted
        return min(wanted, allowed)

    def is_v5(self) -> bool:
        """This client speaks MQTT 5.0."""
        return self.version == V5
