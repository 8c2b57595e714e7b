"""MQTT 3.1.1 and 5.0 packets as bytes: a small, strict codec for tests.

Building is permissive, so that tests can say wrong things on purpose. Parsing is strict: a packet from a server that
breaks a rule of the wire format (reserved bits, unknown property, reason code of another packet, bytes left over ...)
raises `WireError`, which makes whichever test received it fail.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any

V311 = 4
V5 = 5


class WireError(AssertionError):
    """The peer sent bytes that no conforming sender may send."""


class T(IntEnum):
    """Control packet types."""

    CONNECT = 1
    CONNACK = 2
    PUBLISH = 3
    PUBACK = 4
    PUBREC = 5
    PUBREL = 6
    PUBCOMP = 7
    SUBSCRIBE = 8
    SUBACK = 9
    UNSUBSCRIBE = 10
    UNSUBACK = 11
    PINGREQ = 12
    PINGRESP = 13
    DISCONNECT = 14
    AUTH = 15


WILL = 100  # property context of the will inside CONNECT

_ALL_BUT_PINGS = set(T) - {T.PINGREQ, T.PINGRESP}
_ACKS = {T.PUBACK, T.PUBREC, T.PUBREL, T.PUBCOMP}

# id -> (name, wire type, where it may stand)
PROPERTIES: dict[int, tuple[str, str, set[int]]] = {
    0x01: ("payload_format_indicator", "byte", {T.PUBLISH, WILL}),
    0x02: ("message_expiry_interval", "u32", {T.PUBLISH, WILL}),
    0x03: ("content_type", "str", {T.PUBLISH, WILL}),
    0x08: ("response_topic", "str", {T.PUBLISH, WILL}),
    0x09: ("correlation_data", "bin", {T.PUBLISH, WILL}),
    0x0B: ("subscription_identifier", "var", {T.PUBLISH, T.SUBSCRIBE}),
    0x11: ("session_expiry_interval", "u32", {T.CONNECT, T.CONNACK, T.DISCONNECT}),
    0x12: ("assigned_client_identifier", "str", {T.CONNACK}),
    0x13: ("server_keep_alive", "u16", {T.CONNACK}),
    0x15: ("authentication_method", "str", {T.CONNECT, T.CONNACK, T.AUTH}),
    0x16: ("authentication_data", "bin", {T.CONNECT, T.CONNACK, T.AUTH}),
    0x17: ("request_problem_information", "byte", {T.CONNECT}),
    0x18: ("will_delay_interval", "u32", {WILL}),
    0x19: ("request_response_information", "byte", {T.CONNECT}),
    0x1A: ("response_information", "str", {T.CONNACK}),
    0x1C: ("server_reference", "str", {T.CONNACK, T.DISCONNECT}),
    0x1F: ("reason_string", "str", _ACKS | {T.CONNACK, T.SUBACK, T.UNSUBACK, T.DISCONNECT, T.AUTH}),
    0x21: ("receive_maximum", "u16", {T.CONNECT, T.CONNACK}),
    0x22: ("topic_alias_maximum", "u16", {T.CONNECT, T.CONNACK}),
    0x23: ("topic_alias", "u16", {T.PUBLISH}),
    0x24: ("maximum_qos", "byte", {T.CONNACK}),
    0x25: ("retain_available", "byte", {T.CONNACK}),
    0x26: ("user_property", "pair", {int(t) for t in _ALL_BUT_PINGS} | {WILL}),
    0x27: ("maximum_packet_size", "u32", {T.CONNECT, T.CONNACK}),
    0x28: ("wildcard_subscription_available", "byte", {T.CONNACK}),
    0x29: ("subscription_identifier_available", "byte", {T.CONNACK}),
    0x2A: ("shared_subscription_available", "byte", {T.CONNACK}),
}
PROPERTY_IDS = {name: number for number, (name, _, _) in PROPERTIES.items()}
REPEATABLE = {"user_property", "subscription_identifier"}

# Reason codes a packet may carry in MQTT 5.0 (tables 3-1, 3-4 to 3-7 and sections 3.9.3, 3.11.3, 3.14.2, 3.15.2).
REASONS: dict[int, set[int]] = {
    T.CONNACK: {0x00, *range(0x80, 0x8B), 0x8C, 0x90, 0x95, 0x97, 0x99, 0x9A, 0x9B, 0x9C, 0x9D, 0x9F},
    T.PUBACK: {0x00, 0x10, 0x80, 0x83, 0x87, 0x90, 0x91, 0x97, 0x99},
    T.PUBREC: {0x00, 0x10, 0x80, 0x83, 0x87, 0x90, 0x91, 0x97, 0x99},
    T.PUBREL: {0x00, 0x92},
    T.PUBCOMP: {0x00, 0x92},
    T.SUBACK: {0x00, 0x01, 0x02, 0x80, 0x83, 0x87, 0x8F, 0x91, 0x97, 0x9E, 0xA1, 0xA2},
    T.UNSUBACK: {0x00, 0x11, 0x80, 0x83, 0x87, 0x8F, 0x91},
    T.DISCONNECT: {0x00, 0x04, 0x80, 0x81, 0x82, 0x83, 0x87, 0x89, *range(0x8B, 0xA3)} - {0x91, 0x92},
    T.AUTH: {0x00, 0x18, 0x19},
}
CLIENT_ONLY_DISCONNECT = {0x04}


@dataclass
class Packet:
    """One parsed packet; fields that a type does not have keep their defaults."""

    type: T
    flags: int = 0
    pid: int = 0
    reason: int = 0
    reasons: list[int] = field(default_factory=list)
    props: dict[str, Any] = field(default_factory=dict)
    session_present: bool = False
    topic: str = ""
    payload: bytes = b""
    raw: bytes = b""

    @property
    def dup(self) -> bool:
        """DUP flag of a PUBLISH."""
        return bool(self.flags & 8)

    @property
    def qos(self) -> int:
        """QoS of a PUBLISH."""
        return self.flags >> 1 & 3

    @property
    def retain(self) -> bool:
        """RETAIN flag of a PUBLISH."""
        return bool(self.flags & 1)


# --- building --------------------------------------------------------------------------------------------------------


def varint(value: int) -> bytes:
    """Variable byte integer in its shortest form."""
    out = bytearray()
    while True:
        value, digit = divmod(value, 128)
        out.append(digit | (0x80 if value else 0))
        if not value:
            return bytes(out)


def u16(value: int) -> bytes:
    """Two byte integer."""
    return struct.pack(">H", value)


def binary(data: bytes | str) -> bytes:
    """Length-prefixed bytes, or a string as UTF-8."""
    raw = data.encode() if isinstance(data, str) else data
    return u16(len(raw)) + raw


def packet(first: int, body: bytes = b"") -> bytes:
    """Fixed header and body."""
    return bytes([first]) + varint(len(body)) + body


def _property(name: str, value: Any) -> bytes:
    number = PROPERTY_IDS[name]
    kind = PROPERTIES[number][1]
    if kind == "byte":
        body = bytes([value])
    elif kind == "u16":
        body = u16(value)
    elif kind == "u32":
        body = struct.pack(">I", value)
    elif kind == "var":
        body = varint(value)
    elif kind == "pair":
        body = binary(value[0]) + binary(value[1])
    else:
        body = binary(value)
    return bytes([number]) + body


def properties(props: dict[str, Any] | None) -> bytes:
    """Property block with its length; a list value repeats the property."""
    out = b""
    for name, value in (props or {}).items():
        for one in value if isinstance(value, list) else [value]:
            out += _property(name, one)
    return varint(len(out)) + out


@dataclass
class Will:
    """Will of a CONNECT."""

    topic: str
    payload: bytes = b"gone"
    qos: int = 0
    retain: bool = False
    props: dict[str, Any] | None = None


def connect(
    version: int, client_id: str, *, clean: bool = True, keepalive: int = 60, will: Will | None = None,
    username: str | None = None, password: bytes | None = None, props: dict[str, Any] | None = None,
) -> bytes:
    """CONNECT."""
    flags = 0x02 if clean else 0
    payload = binary(client_id)
    if will:
        flags |= 0x04 | will.qos << 3 | (0x20 if will.retain else 0)
        payload += (properties(will.props) if version == V5 else b"") + binary(will.topic) + binary(will.payload)
    if username is not None:
        flags |= 0x80
        payload += binary(username)
    if password is not None:
        flags |= 0x40
        payload += binary(password)
    head = binary("MQTT") + bytes([version, flags]) + u16(keepalive)
    return packet(0x10, head + (properties(props) if version == V5 else b"") + payload)


def connack(version: int, reason: int = 0, session_present: bool = False, props: dict[str, Any] | None = None) -> bytes:
    """CONNACK."""
    return packet(0x20, bytes([session_present, reason]) + (properties(props) if version == V5 else b""))


def publish(
    version: int, topic: str | bytes, payload: bytes = b"", *, qos: int = 0, retain: bool = False, dup: bool = False,
    pid: int = 0, props: dict[str, Any] | None = None,
) -> bytes:
    """PUBLISH; a packet id is written when QoS is not 0."""
    body = binary(topic) + (u16(pid) if qos else b"")
    body += properties(props) if version == V5 else b""
    return packet(0x30 | dup << 3 | qos << 1 | retain, body + payload)


def ack(version: int, kind: T, pid: int, reason: int = 0, props: dict[str, Any] | None = None) -> bytes:
    """PUBACK, PUBREC, PUBREL or PUBCOMP, in the shortest form."""
    body = u16(pid)
    if version == V5 and (reason or props):
        body += bytes([reason]) + (properties(props) if props else b"")
    return packet(kind << 4 | (2 if kind == T.PUBREL else 0), body)


def subscribe(
    version: int, pid: int, filters: list[tuple[str, int]], props: dict[str, Any] | None = None
) -> bytes:
    """SUBSCRIBE; each filter comes with its options byte (for 3.1.1: the QoS)."""
    body = u16(pid) + (properties(props) if version == V5 else b"")
    return packet(0x82, body + b"".join(binary(name) + bytes([options]) for name, options in filters))


def unsubscribe(version: int, pid: int, filters: list[str], props: dict[str, Any] | None = None) -> bytes:
    """UNSUBSCRIBE."""
    body = u16(pid) + (properties(props) if version == V5 else b"")
    return packet(0xA2, body + b"".join(binary(name) for name in filters))


def suback(version: int, pid: int, reasons: list[int], props: dict[str, Any] | None = None) -> bytes:
    """SUBACK."""
    return packet(0x90, u16(pid) + (properties(props) if version == V5 else b"") + bytes(reasons))


def unsuback(version: int, pid: int, reasons: list[int], props: dict[str, Any] | None = None) -> bytes:
    """UNSUBACK; without reasons in 3.1.1."""
    return packet(0xB0, u16(pid) + (properties(props) + bytes(reasons) if version == V5 else b""))


PINGREQ = packet(0xC0)
PINGRESP = packet(0xD0)


def disconnect(version: int, reason: int = 0, props: dict[str, Any] | None = None) -> bytes:
    """DISCONNECT, in the shortest form."""
    if version == V311 or not (reason or props):
        return packet(0xE0)
    return packet(0xE0, bytes([reason]) + (properties(props) if props else b""))


def auth(reason: int = 0, props: dict[str, Any] | None = None) -> bytes:
    """AUTH."""
    return packet(0xF0, bytes([reason]) + properties(props) if reason or props else b"")


def sub_options(
    qos: int, *, no_local: bool = False, retain_as_published: bool = False, retain_handling: int = 0
) -> int:
    """Options byte of a 5.0 subscription."""
    return qos | no_local << 2 | retain_as_published << 3 | retain_handling << 4


# --- parsing ---------------------------------------------------------------------------------------------------------


class Reader:
    """Cursor over the body of one packet."""

    def __init__(self, data: bytes) -> None:
        self.data, self.at = data, 0

    def left(self) -> int:
        """Bytes not yet read."""
        return len(self.data) - self.at

    def take(self, count: int) -> bytes:
        """The next `count` bytes."""
        if self.left() < count:
            raise WireError(f"packet body ends early: {self.data.hex(' ')}")
        self.at += count
        return self.data[self.at - count : self.at]

    def byte(self) -> int:
        """One byte."""
        return self.take(1)[0]

    def u16(self) -> int:
        """Two byte integer."""
        return int.from_bytes(self.take(2), "big")

    def u32(self) -> int:
        """Four byte integer."""
        return int.from_bytes(self.take(4), "big")

    def binary(self) -> bytes:
        """Length-prefixed bytes."""
        return self.take(self.u16())

    def string(self) -> str:
        """UTF-8 string without U+0000 and surrogates."""
        raw = self.binary()
        try:
            text = raw.decode("utf-8")
        except UnicodeDecodeError as error:
            raise WireError(f"string is not UTF-8: {raw.hex(' ')}") from error
        if "\0" in text:
            raise WireError("string holds U+0000")
        return text

    def varint(self) -> int:
        """Variable byte integer; a longer form than needed is an error."""
        start, value = self.at, 0
        for shift in (0, 7, 14, 21):
            digit = self.byte()
            value |= (digit & 0x7F) << shift
            if not digit & 0x80:
                break
        else:
            raise WireError("variable byte integer longer than four bytes")
        if varint(value) != self.data[start : self.at]:
            raise WireError("variable byte integer is not in its shortest form")
        return value

    def properties(self, where: int) -> dict[str, Any]:
        """Property block of a packet of kind `where`."""
        inner = Reader(self.take(self.varint()))
        found: dict[str, Any] = {}
        while inner.left():
            number = inner.varint()
            name, kind, allowed = PROPERTIES.get(number, ("?", "?", set()))
            if where not in allowed:
                raise WireError(f"property 0x{number:02x} ({name}) in packet kind {where}")
            value = inner.value(kind)
            if name in REPEATABLE:
                found.setdefault(name, []).append(value)
            elif name in found:
                raise WireError(f"property {name} twice")
            else:
                found[name] = value
        return found

    def value(self, kind: str) -> Any:
        """Value of one property."""
        if kind == "pair":
            return (self.string(), self.string())
        names = {"byte": self.byte, "u16": self.u16, "u32": self.u32, "var": self.varint, "bin": self.binary}
        return names.get(kind, self.string)()


def split(buffer: bytes | bytearray) -> tuple[int, int] | None:
    """(header size, total size) of the first packet in the buffer, or None while more bytes are needed."""
    length = 0
    for index in range(1, 5):
        if len(buffer) <= index:
            return None
        length |= (buffer[index] & 0x7F) << 7 * (index - 1)
        if not buffer[index] & 0x80:
            total = index + 1 + length
            if varint(length) != bytes(buffer[1 : index + 1]):
                raise WireError("remaining length is not in its shortest form")
            return (index + 1, total) if len(buffer) >= total else None
    raise WireError("remaining length longer than four bytes")


def parse(version: int, raw: bytes) -> Packet:
    """Parses one whole packet as sent by a server."""
    sizes = split(raw)
    if sizes is None or sizes[1] != len(raw):
        raise WireError(f"not one whole packet: {raw.hex(' ')}")
    number, flags = raw[0] >> 4, raw[0] & 15
    if number == 0 or (number == T.AUTH and version == V311):
        raise WireError(f"reserved packet type {number}")
    got = Packet(T(number), flags, raw=bytes(raw))
    wanted_flags = 2 if got.type in (T.PUBREL, T.SUBSCRIBE, T.UNSUBSCRIBE) else 0
    if got.type != T.PUBLISH and flags != wanted_flags:
        raise WireError(f"{got.type.name} with reserved flags {flags:04b}")
    body = Reader(bytes(raw[sizes[0] :]))
    _PARSERS[got.type](version, body, got)
    if body.left():
        raise WireError(f"{got.type.name} has {body.left()} bytes too many: {bytes(raw).hex(' ')}")
    return got


def _check_reason(version: int, got: Packet) -> None:
    allowed = REASONS[got.type] if version == V5 else set(range(6))
    if got.reason not in allowed or (got.type == T.DISCONNECT and got.reason in CLIENT_ONLY_DISCONNECT):
        raise WireError(f"{got.type.name} with reason code 0x{got.reason:02x}")


def _connack(version: int, body: Reader, got: Packet) -> None:
    flags = body.byte()
    if flags > 1:
        raise WireError(f"CONNACK with acknowledge flags 0x{flags:02x}")
    got.session_present, got.reason = bool(flags), body.byte()
    if version == V5:
        got.props = body.properties(T.CONNACK)
    if got.reason and got.session_present:
        raise WireError("CONNACK with an error and session present")
    _check_connack_values(got.props)


def _check_connack_values(props: dict[str, Any]) -> None:
    for name in ("receive_maximum", "maximum_packet_size"):
        if props.get(name) == 0:
            raise WireError(f"CONNACK with {name} 0")
    for name in ("maximum_qos", "retain_available", "wildcard_subscription_available",
                 "subscription_identifier_available", "shared_subscription_available"):
        if props.get(name, 0) not in (0, 1):
            raise WireError(f"CONNACK with {name} {props[name]}")


def _publish(version: int, body: Reader, got: Packet) -> None:
    if got.qos == 3:
        raise WireError("PUBLISH with QoS 3")
    if got.qos == 0 and got.dup:
        raise WireError("PUBLISH of QoS 0 with DUP")
    got.topic = body.string()
    if set(got.topic) & set("+#"):
        raise WireError(f"PUBLISH to a topic name with a wildcard: {got.topic!r}")
    if got.qos:
        got.pid = body.u16()
        if got.pid == 0:
            raise WireError("PUBLISH with packet identifier 0")
    if version == V5:
        got.props = body.properties(T.PUBLISH)
        if got.props.get("topic_alias") == 0:
            raise WireError("PUBLISH with topic alias 0")
    if not got.topic and "topic_alias" not in got.props:
        raise WireError("PUBLISH without a topic")
    got.payload = body.take(body.left())


def _ack(version: int, body: Reader, got: Packet) -> None:
    got.pid = body.u16()
    if version == V5 and body.left():
        got.reason = body.byte()
        if body.left():
            got.props = body.properties(got.type)
    if version == V5:
        _check_reason(version, got)


def _suback(version: int, body: Reader, got: Packet) -> None:
    got.pid = body.u16()
    if version == V5:
        got.props = body.properties(got.type)
    if version == V311 and got.type == T.UNSUBACK:
        return
    got.reasons = list(body.take(body.left()))
    allowed = REASONS[got.type] if version == V5 else {0, 1, 2, 0x80}
    if not got.reasons or not set(got.reasons) <= allowed:
        raise WireError(f"{got.type.name} with reason codes {bytes(got.reasons).hex(' ')}")


def _disconnect(version: int, body: Reader, got: Packet) -> None:
    if version == V311:
        raise WireError(f"server sent {got.type.name} in MQTT 3.1.1")
    if body.left():
        got.reason = body.byte()
        if body.left():
            got.props = body.properties(got.type)
    if got.type == T.DISCONNECT and "session_expiry_interval" in got.props:
        raise WireError("server sent a session expiry interval in DISCONNECT")


def _parse_connack(version: int, body: Reader, got: Packet) -> None:
    _connack(version, body, got)
    _check_reason(version, got)


def _parse_disconnect(version: int, body: Reader, got: Packet) -> None:
    _disconnect(version, body, got)
    _check_reason(version, got)


def _empty(_version: int, _body: Reader, _got: Packet) -> None:
    """PINGRESP has no body."""


def _from_client(_version: int, _body: Reader, got: Packet) -> None:
    raise WireError(f"server sent {got.type.name}, which only clients send")


_PARSERS = {
    T.CONNECT: _from_client,
    T.CONNACK: _parse_connack,
    T.PUBLISH: _publish,
    T.PUBACK: _ack,
    T.PUBREC: _ack,
    T.PUBREL: _ack,
    T.PUBCOMP: _ack,
    T.SUBSCRIBE: _from_client,
    T.SUBACK: _suback,
    T.UNSUBSCRIBE: _from_client,
    T.UNSUBACK: _suback,
    T.PINGREQ: _from_client,
    T.PINGRESP: _empty,
    T.DISCONNECT: _parse_disconnect,
    T.AUTH: _parse_disconnect,
}
