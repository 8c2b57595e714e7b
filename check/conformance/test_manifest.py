"""The manifest and the tests agree. Needs no broker."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import mqttwire as w
import tables


def test_manifest() -> None:
    """Every listed test exists, every mark is listed, no id stands twice; prints how much is tested."""
    tool = Path(__file__).parent / "manifest.py"
    done = subprocess.run([sys.executable, str(tool), "--json"], capture_output=True, text=True, check=False)
    assert done.stdout, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    print(found["counts"])
    assert not found["problems"], "\n".join(found["problems"])


def test_table_notation() -> None:
    """The shorthands of the tables mean what tables.py says."""
    assert tables.parse_bytes("30 { <'ab'> 00*3 }") == b"\x30\x07\x00\x02ab\x00\x00\x00"
    assert tables.parse_bytes("10 { { 11 } < ff00 > }") == b"\x10\x06\x01\x11\x00\x02\xff\x00"


def test_codec() -> None:
    """The codec reads what it writes."""
    props = {"user_property": [("a", "b")], "subscription_identifier": [5, 300]}
    raw = w.publish(w.V5, "t/\u00e9", b"x" * 200, qos=2, retain=True, dup=True, pid=9, props=props)
    got = w.parse(w.V5, raw)
    assert (got.topic, got.qos, got.retain, got.dup, got.pid) == ("t/\u00e9", 2, True, True, 9)
    assert got.props == props and got.payload == b"x" * 200
    for value, size in ((0, 1), (127, 1), (128, 2), (16383, 2), (16384, 3), (2097151, 3), (2097152, 4)):
        assert len(w.varint(value)) == size
        assert w.Reader(w.varint(value)).varint() == value
