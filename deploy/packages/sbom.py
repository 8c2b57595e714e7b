#!/usr/bin/env python3
"""Writes the parts list (CycloneDX 1.5) of the program for one Rust target, from Cargo.lock by way of `cargo metadata`.

Usage: deploy/packages/sbom.py --target TARGET --timestamp SECONDS --output FILE
Lists each crate that is linked in with version, licence, checksum and what it depends on. The same input gives the same bytes.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import tomllib
import uuid
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
PROGRAM = "sedge"


def metadata(target: str) -> dict[str, Any]:
    """What Cargo would build for `target`."""
    command = ["cargo", "metadata", "--format-version", "1", "--locked", "--filter-platform", target]
    found: dict[str, Any] = json.loads(subprocess.run(command, cwd=ROOT, check=True, capture_output=True).stdout)
    return found


def linked(found: dict[str, Any]) -> dict[str, list[str]]:
    """The packages that the program needs to run, and which others each of them needs; neither tests nor build scripts."""
    nodes = {node["id"]: node for node in found["resolve"]["nodes"]}
    first = next(package["id"] for package in found["packages"] if package["name"] == PROGRAM)
    wanted: dict[str, list[str]] = {}
    open_ids = [first]
    while open_ids:
        one = open_ids.pop()
        if one in wanted:
            continue
        normal = [dep["pkg"] for dep in nodes[one]["deps"] if any(kind["kind"] is None for kind in dep["dep_kinds"])]
        wanted[one] = normal
        open_ids.extend(normal)
    return wanted


def purl(package: dict[str, Any]) -> str:
    """The package's URL, as the standard has it."""
    return f"pkg:cargo/{package['name']}@{package['version']}"


def component(package: dict[str, Any], checksums: dict[tuple[str, str], str]) -> dict[str, Any]:
    """One crate."""
    entry: dict[str, Any] = {
        "type": "library", "bom-ref": purl(package), "name": package["name"], "version": package["version"], "purl": purl(package),
    }
    if package["license"]:
        entry["licenses"] = [{"expression": package["license"].replace("/", " OR ")}]
    checksum = checksums.get((package["name"], package["version"]))
    if checksum:
        entry["hashes"] = [{"alg": "SHA-256", "content": checksum}]
    return entry


def parts_list(target: str, timestamp: int) -> dict[str, Any]:
    """The whole document."""
    found = metadata(target)
    packages = {package["id"]: package for package in found["packages"]}
    lock = tomllib.loads((ROOT / "Cargo.lock").read_text())
    checksums = {(entry["name"], entry["version"]): entry["checksum"] for entry in lock["package"] if "checksum" in entry}
    wanted = linked(found)
    program = next(packages[one] for one in wanted if packages[one]["name"] == PROGRAM)
    parts = sorted((component(packages[one], checksums) for one in wanted if packages[one] is not program), key=lambda part: part["purl"])
    edges = sorted(
        ({"ref": purl(packages[one]), "dependsOn": sorted({purl(packages[other]) for other in others})} for one, others in wanted.items()),
        key=lambda edge: str(edge["ref"]),
    )
    root = component(program, checksums) | {"type": "application"}
    name = f"{purl(program)}?target={target}#{json.dumps(parts, sort_keys=True)}"
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, name)}",
        "version": 1,
        "metadata": {
            "timestamp": datetime.fromtimestamp(timestamp, timezone.utc).isoformat().replace("+00:00", "Z"),
            "component": root,
            "properties": [{"name": "rust:target", "value": target}],
        },
        "components": parts,
        "dependencies": edges,
    }


def main() -> None:
    """Reads the flags and writes the file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--target", required=True)
    parser.add_argument("--timestamp", type=int, required=True)
    parser.add_argument("--output", type=Path, required=True)
    options = parser.parse_args()
    document = parts_list(options.target, options.timestamp)
    options.output.write_text(json.dumps(document, indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    main()
