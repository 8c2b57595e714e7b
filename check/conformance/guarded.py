"""A client's side of SCRAM-SHA-256, and the accounts and rules that a guarded broker has.

The tests with the fixture `guarded` need a broker where this user has this password, may authenticate with SCRAM-SHA-256, and
may do everything below `ct/` but nothing below REFUSED. `run --target sedge` starts one.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import uuid
from typing import Any

import mqttwire as w
from client import Client
from mqttwire import Packet, T

USER, PASSWORD = "guarded", "a password"
REFUSED = "ct/refused"
METHOD = "SCRAM-SHA-256"
CONTINUE, AGAIN = 0x18, 0x19


def _hmac(key: bytes, text: bytes) -> bytes:
    return hmac.new(key, text, hashlib.sha256).digest()


class Scram:
    """One exchange (RFC 5802 section 3)."""

    def __init__(self, user: str = USER, password: str = PASSWORD) -> None:
        self.bare = f"n={user},r={uuid.uuid4().hex}"
        self.first = f"n,,{self.bare}".encode()
        self._password, self._signature = password.encode(), b""

    def last(self, asked: bytes) -> bytes:
        """The answer to the server's first message."""
        fields = dict(one.split("=", 1) for one in asked.decode().split(","))
        assert fields["r"].startswith(self.bare.partition("r=")[2]) and len(fields["r"]) > 40, fields
        salted = hashlib.pbkdf2_hmac("sha256", self._password, base64.b64decode(fields["s"]), int(fields["i"]))
        without_proof = f"c=biws,r={fields['r']}"
        message = f"{self.bare},{asked.decode()},{without_proof}".encode()
        key = _hmac(salted, b"Client Key")
        proof = bytes(a ^ b for a, b in zip(key, _hmac(hashlib.sha256(key).digest(), message), strict=True))
        self._signature = _hmac(_hmac(salted, b"Server Key"), message)
        return f"{without_proof},p={base64.b64encode(proof).decode()}".encode()

    def check(self, told: bytes) -> None:
        """The server knows the password, too."""
        assert told == b"v=" + base64.b64encode(self._signature), told


def props(data: bytes, method: str = METHOD) -> dict[str, Any]:
    """Properties of CONNECT and AUTH."""
    return {"authentication_method": method, "authentication_data": data}


def asked(client: Client) -> Packet:
    """The AUTH that asks for more."""
    got = client.expect(T.AUTH, reason=CONTINUE)
    assert got.props["authentication_method"] == METHOD
    return got


def begin(client: Client, client_id: str, scram: Scram, **options: Any) -> Packet:
    """CONNECT, and the AUTH that asks for more."""
    options["props"] = {**props(scram.first), **options.pop("props", {})}
    client.client_id = client_id
    client.send(w.connect(client.version, client_id, **options))
    return asked(client)


def connect(client: Client, client_id: str, **options: Any) -> Packet:
    """CONNECT with the whole exchange; returns the CONNACK."""
    scram = Scram()
    step = begin(client, client_id, scram, **options)
    client.send(w.auth(CONTINUE, props(scram.last(step.props["authentication_data"]))))
    client.connack = client.expect(T.CONNACK, reason=0)
    assert client.connack.props["authentication_method"] == METHOD
    scram.check(client.connack.props["authentication_data"])
    return client.connack
