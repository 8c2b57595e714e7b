#!/usr/bin/env python3
"""Writes an image of one static binary as an archive for `docker load`; equal input gives an equal archive."""

from __future__ import annotations

import argparse
import hashlib
import io
import json
import re
import tarfile
from pathlib import Path

USER = 65532
MACHINES = {"amd64": 62, "arm64": 183}  # e_machine of ELF


def instructions(dockerfile: str) -> list[tuple[str, str]]:
    """The instructions of the last stage, as (word, rest)."""
    stage = re.split(r"^FROM scratch$", dockerfile, flags=re.MULTILINE)[-1]
    lines = [line.strip() for line in stage.splitlines()]
    return [tuple(line.split(None, 1)) for line in lines if line and not line.startswith("#")]  # type: ignore[misc]


def healthcheck(rest: str) -> dict[str, object]:
    """A HEALTHCHECK instruction as the engine keeps it: durations in nanoseconds."""
    options, command = rest.split(" CMD ", 1)
    found: dict[str, object] = {"Test": ["CMD", *json.loads(command)]}
    names = {"interval": "Interval", "timeout": "Timeout", "start-period": "StartPeriod"}
    for option in options.split():
        name, value = option.removeprefix("--").split("=", 1)
        if name == "retries":
            found["Retries"] = int(value)
        else:
            found[names[name]] = int(value.removesuffix("s")) * 1_000_000_000
    return found


def configuration(dockerfile: str, architecture: str, layer: str) -> dict[str, object]:
    """The image configuration that the Dockerfile's last stage asks for."""
    config: dict[str, object] = {"Env": ["PATH=/"], "ExposedPorts": {}, "Volumes": {}}
    for word, rest in instructions(dockerfile):
        match word:
            case "ENV":
                config["Env"] = ["PATH=/", *rest.split()]
            case "USER":
                config["User"] = rest
            case "VOLUME":
                config["Volumes"] = {rest: {}}
            case "EXPOSE":
                config["ExposedPorts"] = {port if "/" in port else f"{port}/tcp": {} for port in rest.split()}
            case "ENTRYPOINT":
                config["Entrypoint"] = json.loads(rest)
            case "CMD":
                config["Cmd"] = json.loads(rest)
            case "HEALTHCHECK":
                config["Healthcheck"] = healthcheck(rest)
            case "COPY":
                pass
            case _:
                raise SystemExit(f"deploy/Dockerfile: {word} is not known to image_archive.py")
    return {
        "architecture": architecture,
        "os": "linux",
        "created": "1970-01-01T00:00:00Z",
        "config": config,
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{layer}"]},
        "history": [{"created": "1970-01-01T00:00:00Z", "created_by": "deploy/image.sh"}],
    }


def check_binary(binary: bytes, architecture: str, path: Path) -> None:
    """Refuses what would not run in an empty image."""
    if binary[:4] != b"\x7fELF":
        raise SystemExit(f"{path}: not an ELF program")
    if int.from_bytes(binary[18:20], "little") != MACHINES[architecture]:
        raise SystemExit(f"{path}: not for {architecture}")
    offset, size, count = (int.from_bytes(binary[a:b], "little") for a, b in ((32, 40), (54, 56), (56, 58)))
    kinds = [int.from_bytes(binary[at : at + 4], "little") for at in range(offset, offset + size * count, size)]
    if 3 in kinds:  # PT_INTERP
        raise SystemExit(f"{path}: needs a dynamic loader; build it for a musl target")


def add(tar: tarfile.TarFile, name: str, content: bytes | None, mode: int, owner: int = 0) -> None:
    """Adds a file, or a folder where there is no content."""
    info = tarfile.TarInfo(name)
    info.mode, info.uid, info.gid = mode, owner, owner
    if content is None:
        info.type = tarfile.DIRTYPE
        tar.addfile(info)
    else:
        info.size = len(content)
        tar.addfile(info, io.BytesIO(content))


def main() -> None:
    """Reads the arguments and writes the archive."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--binary", type=Path, required=True)
    parser.add_argument("--architecture", choices=sorted(MACHINES), required=True)
    parser.add_argument("--output", type=Path, required=True)
    arguments = parser.parse_args()

    binary = arguments.binary.read_bytes()
    check_binary(binary, arguments.architecture, arguments.binary)
    layer = io.BytesIO()
    with tarfile.open(fileobj=layer, mode="w") as tar:
        add(tar, "sedge", binary, 0o755)
        add(tar, "data", None, 0o755, USER)
    digest = hashlib.sha256(layer.getvalue()).hexdigest()
    dockerfile = Path(__file__).with_name("Dockerfile").read_text()
    config = json.dumps(configuration(dockerfile, arguments.architecture, digest), sort_keys=True).encode()
    config_name = f"{hashlib.sha256(config).hexdigest()}.json"
    manifest = [{"Config": config_name, "RepoTags": ["sedge:latest"], "Layers": [f"{digest}/layer.tar"]}]
    with tarfile.open(arguments.output, mode="w") as tar:
        add(tar, config_name, config, 0o644)
        add(tar, f"{digest}/layer.tar", layer.getvalue(), 0o644)
        add(tar, "manifest.json", json.dumps(manifest).encode(), 0o644)
    print(f"{arguments.output}: {len(binary) / 1e6:.1f} MB binary, {arguments.architecture}")


if __name__ == "__main__":
    main()
