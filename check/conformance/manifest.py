"""Reads and checks `manifest.toml`, and fills in its lists of tests: `python manifest.py --write`."""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import sys
import tomllib
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent
FILE = HERE / "manifest.toml"
LEVELS = {"must", "should", "may"}
APPLIES = {"server", "client", "both"}
STATUSES = {"tested", "not-testable", "not-applicable", "client-only", "untested"}
HEADER = """\
# Every normative statement of MQTT 3.1.1 and MQTT 5.0, in our own words, and the tests that check it.
# The lists of tests and the status "tested" come from the marks in the tests: python manifest.py --write
# Reading help: README.md.

"""
Key = tuple[str, str]


def load() -> list[dict[str, Any]]:
    """All statements, in the order of the file."""
    statements: list[dict[str, Any]] = tomllib.loads(FILE.read_text())["statements"]
    return statements


class _Collector:
    """Pytest plugin that notes which test is marked with which statement."""

    def __init__(self) -> None:
        self.tests: set[str] = set()
        self.marks: dict[Key, set[str]] = defaultdict(set)

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Called once with every test."""
        for item in items:
            self.tests |= {item.nodeid, item.nodeid.split("[")[0]}
            of_row = getattr(getattr(item, "callspec", None), "marks", [])
            for mark in item.iter_markers("mqtt"):
                name = item.nodeid if mark in of_row else item.nodeid.split("[")[0]
                for number in mark.args:
                    self.marks[(mark.kwargs["version"], number)].add(name)


def collect() -> tuple[set[str], dict[Key, set[str]]]:
    """Names of all tests, and for each statement the tests marked with it."""
    collector = _Collector()
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        code = pytest.main(["--collect-only", "-qq", "--rootdir", str(HERE), str(HERE)], plugins=[collector])
    if code != 0:
        raise SystemExit(f"the tests cannot be collected:\n{said.getvalue()[-3000:]}")
    return collector.tests, collector.marks


def problems(statements: list[dict[str, Any]], tests: set[str], marks: dict[Key, set[str]]) -> list[str]:
    """Everything in which manifest and tests disagree."""
    found = [f"{key} stands twice" for key, times in Counter(map(key_of, statements)).items() if times > 1]
    for one in statements:
        found += _problems_of(one, tests, marks.get(key_of(one), set()))
    unknown = set(marks) - set(map(key_of, statements))
    return found + [f"{key} is marked on {sorted(marks[key])} but not in the manifest" for key in sorted(unknown)]


def key_of(one: dict[str, Any]) -> Key:
    """The key of a statement: its version and id, since both standards use the same numbers."""
    return one["version"], one["id"]


def _problems_of(one: dict[str, Any], tests: set[str], marked: set[str]) -> list[str]:
    name, out = f"{one['version']} {one['id']}", []
    for field, allowed in (("level", LEVELS), ("applies", APPLIES), ("status", STATUSES)):
        if one.get(field) not in allowed:
            out.append(f"{name}: {field} is {one.get(field)!r}")
    if set(one.get("tests", [])) != marked:
        out.append(f"{name}: tests listed and tests marked differ in {sorted(set(one.get('tests', [])) ^ marked)}")
    if not set(one.get("tests", [])) <= tests:
        out.append(f"{name}: no such test {sorted(set(one['tests']) - tests)}")
    if (one["status"] == "tested") != bool(marked):
        out.append(f"{name}: status is {one['status']} with {len(marked)} tests")
    if one["status"] != "tested" and not one.get("reason"):
        out.append(f"{name}: not tested, and no reason given")
    if not one.get("paraphrase"):
        out.append(f"{name}: no paraphrase")
    return out


def stale(tests: set[str]) -> list[str]:
    """Tests that a list of known deviations names and that do not exist."""
    out = []
    for path in sorted(HERE.glob("known_*.toml")):
        for entry in tomllib.loads(path.read_text())["known"]:
            out += [f"{path.name}: no such test {name}" for name in entry["tests"] if name not in tests]
    return out


def counts(statements: list[dict[str, Any]]) -> str:
    """How many statements there are, by version and status."""
    lines = []
    for version in ("3.1.1", "5.0"):
        by_status = Counter(one["status"] for one in statements if one["version"] == version)
        parts = ", ".join(f"{number} {status}" for status, number in by_status.most_common())
        lines.append(f"MQTT {version}: {by_status.total()} statements: {parts}")
    return "\n".join(lines)


def write(statements: list[dict[str, Any]], marks: dict[Key, set[str]]) -> None:
    """Writes the file anew with the tests that are marked now."""
    lines = [_line(one, sorted(marks.get(key_of(one), set()))) for one in statements]
    FILE.write_text(HEADER + "statements = [\n" + "".join(lines) + "]\n")


def _line(one: dict[str, Any], tests: list[str]) -> str:
    status = "tested" if tests else one["status"]
    head = {"id": one["id"], "version": one["version"], "level": one["level"], "applies": one["applies"]}
    rest = {"paraphrase": one["paraphrase"]} | ({} if tests else {"reason": one.get("reason", "")})
    fields = head | {"status": status} | rest
    pairs = [f"{name} = {json.dumps(value, ensure_ascii=False)}" for name, value in fields.items()]
    listed = "".join(f"\n    {json.dumps(name)}," for name in tests)
    return "  { " + ", ".join(pairs) + f", tests = [{listed}{chr(10) + '  ' if tests else ''}] }},\n"


def main() -> int:
    """Command line: prints counts and problems as text or JSON, or writes the lists of tests."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true", help="fill in the lists of tests")
    parser.add_argument("--json", action="store_true", help="print counts and problems as JSON")
    arguments = parser.parse_args()
    sys.path.insert(0, str(HERE))
    tests, marks = collect()
    if arguments.write:
        write(load(), marks)
    found = problems(load(), tests, marks) + stale(tests)
    text = counts(load())
    print(json.dumps({"counts": text, "problems": found}) if arguments.json else "\n".join([text, *found]))
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
