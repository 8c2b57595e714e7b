"""Reads the tables of wrong bytes in `data/`.

Bytes are written as hex with three shorthands: 'text' stands for ASCII, <...> puts a two byte length before its
content, and {...} puts a variable byte integer before it (a remaining length or a property length).
"""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import mqttwire as w
from mqttwire import V5, V311

DATA = Path(__file__).parent / "data"
_TOKEN = re.compile(r"\s*(?:'([^']*)'|([<>{}])|([0-9a-fA-F]{2}(?:[0-9a-fA-F]{2})*)(?:\*(\d+))?)")
VERSIONS = {"3.1.1": V311, "5.0": V5}


@dataclass
class Case:
    """One row of a table for one version."""

    name: str
    version: int
    stage: str
    data: bytes
    why: str
    reasons: list[int] = field(default_factory=list)
    silent: bool = False
    may_serve: bool = False
    v3: list[str] = field(default_factory=list)
    v5: list[str] = field(default_factory=list)

    @property
    def id(self) -> str:
        """Name of the row in test ids."""
        return f"{self.name}-{'v5' if self.version == V5 else 'v311'}"


def parse_bytes(text: str) -> bytes:
    """The bytes that a table writes as text."""
    stack: list[tuple[str, bytearray]] = [("", bytearray())]
    at = 0
    text = text.strip()
    while at < len(text):
        match = _TOKEN.match(text, at)
        if not match:
            raise ValueError(f"cannot read {text[at:]!r}")
        at = match.end()
        quoted, bracket, digits, times = match.groups()
        if bracket and bracket in "<{":
            stack.append((bracket, bytearray()))
        elif bracket:
            opened, inner = stack.pop()
            assert opened + bracket in ("<>", "{}"), f"brackets do not match in {text!r}"
            stack[-1][1].extend((w.u16(len(inner)) if opened == "<" else w.varint(len(inner))) + inner)
        elif quoted is not None:
            stack[-1][1].extend(quoted.encode())
        else:
            stack[-1][1].extend(bytes.fromhex(digits) * int(times or 1))
    assert len(stack) == 1, f"bracket not closed in {text!r}"
    return bytes(stack[0][1])


def load() -> list[Case]:
    """Every row of every table."""
    cases: list[Case] = []
    for path in sorted(DATA.glob("*.toml")):
        for row in tomllib.loads(path.read_text())["case"]:
            cases += _row(row)
    assert len({case.id for case in cases}) == len(cases), "row names must be unique"
    return cases


def _row(row: dict[str, Any]) -> list[Case]:
    """A row holds `hex` with a version or "both", or `v311_hex` and `v5_hex`."""
    out = []
    for name, version in VERSIONS.items():
        text = row.get("v5_hex" if version == V5 else "v311_hex")
        if text is None and row.get("version") in (name, "both"):
            text = row["hex"]
        if text is None:
            continue
        out.append(Case(row["name"], version, row["stage"], parse_bytes(text), row["why"],
                        row.get("reasons", []) if version == V5 else row.get("codes", []),
                        row.get("silent", False) and version == V311, row.get("may_serve", False),
                        row.get("v3", []) if version == V311 else [], row.get("v5", []) if version == V5 else []))
    return out
