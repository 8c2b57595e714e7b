#!/usr/bin/env python3
"""Writes an image of one static binary as an archive for `docker load`; equal input gives an equal archive.

With --index it writes one OCI archive of an image index instead: the same image for each ARCHITECTURE=BINARY, and beside each its parts list
and its provenance, as in-toto statements of the kind that BuildKit makes.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import io
import json
import re
import tarfile
from pathlib import Path

USER = 65532
MACHINES = {"amd64": 62, "arm64": 183, "arm": 40}  # e_machine of ELF
OCI = "application/vnd.oci.image"


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


def platform(architecture: str) -> dict[str, str]:
    """What an image says of the machine that it is for; 64-bit ARM has one variant only, which is left out as is usual."""
    variant = {"variant": "v7"} if architecture == "arm" else {}
    return {"architecture": architecture, "os": "linux", **variant}


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
        **platform(architecture),
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
    fields = ((28, 32), (42, 44), (44, 46)) if binary[4] == 1 else ((32, 40), (54, 56), (56, 58))
    offset, size, count = (int.from_bytes(binary[a:b], "little") for a, b in fields)
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


def layer_of(binary: bytes) -> bytes:
    """The only layer: the program and an empty folder for its data."""
    layer = io.BytesIO()
    with tarfile.open(fileobj=layer, mode="w") as tar:
        add(tar, "sedge", binary, 0o755)
        add(tar, "data", None, 0o755, USER)
    return layer.getvalue()


class Layout:
    """The blobs of an OCI image layout."""

    def __init__(self) -> None:
        self.blobs: dict[str, bytes] = {}

    def put(self, kind: str, content: bytes | dict[str, object], **more: object) -> dict[str, object]:
        """Keeps a blob and describes it."""
        data = content if isinstance(content, bytes) else json.dumps(content, sort_keys=True).encode()
        digest = hashlib.sha256(data).hexdigest()
        self.blobs[digest] = data
        return {"mediaType": kind, "digest": f"sha256:{digest}", "size": len(data), **more}

    def manifest(self, config: dict[str, object], layers: list[dict[str, object]], **more: object) -> dict[str, object]:
        """Keeps a manifest and describes it."""
        described = {
            "schemaVersion": 2,
            "mediaType": f"{OCI}.manifest.v1+json",
            "config": self.put(f"{OCI}.config.v1+json", config),
            "layers": layers,
        }
        return self.put(f"{OCI}.manifest.v1+json", described, **more)

    def image(self, dockerfile: str, architecture: str, binary: bytes) -> dict[str, object]:
        """Keeps the image for one architecture."""
        layer = layer_of(binary)
        config = configuration(dockerfile, architecture, hashlib.sha256(layer).hexdigest())
        packed = self.put(f"{OCI}.layer.v1.tar+gzip", gzip.compress(layer, 9, mtime=0))
        return self.manifest(config, [packed], platform=platform(architecture))

    def statements(self, image: dict[str, object], parts: bytes, provenance: bytes) -> dict[str, object]:
        """Keeps what is said of an image: its parts list and how it was made."""
        digest = str(image["digest"])
        subject = [{"name": "sedge", "digest": {"sha256": digest.removeprefix("sha256:")}}]
        made = json.loads(provenance)
        said = [("https://cyclonedx.org/bom", json.loads(parts)), (made["predicateType"], made["predicate"])]
        layers = [
            self.put(
                "application/vnd.in-toto+json",
                {"_type": "https://in-toto.io/Statement/v1", "subject": subject, "predicateType": kind, "predicate": predicate},
                annotations={"in-toto.io/predicate-type": kind},
            )
            for kind, predicate in said
        ]
        nowhere = {"architecture": "unknown", "os": "unknown"}
        ids = [layer["digest"] for layer in layers]
        return self.manifest(
            {**nowhere, "config": {}, "rootfs": {"type": "layers", "diff_ids": ids}},
            layers,
            platform=nowhere,
            annotations={"vnd.docker.reference.digest": digest, "vnd.docker.reference.type": "attestation-manifest"},
        )

    def write(self, output: Path, index: dict[str, object]) -> None:
        """Writes the archive, whose only image is `index`."""
        with tarfile.open(output, mode="w") as tar:
            add(tar, "oci-layout", json.dumps({"imageLayoutVersion": "1.0.0"}).encode(), 0o644)
            top = {"schemaVersion": 2, "mediaType": f"{OCI}.index.v1+json", "manifests": [index]}
            add(tar, "index.json", json.dumps(top, sort_keys=True).encode(), 0o644)
            for digest, data in sorted(self.blobs.items()):
                add(tar, f"blobs/sha256/{digest}", data, 0o644)


def write_index(arguments: argparse.Namespace, dockerfile: str) -> None:
    """Writes the archive of all architectures; the images come first, as some programs take the first that fits."""
    layout = Layout()
    images, statements = [], []
    for pair in arguments.index:
        architecture, _, path = pair.partition("=")
        if architecture not in MACHINES:
            raise SystemExit(f"{pair}: use ARCHITECTURE=BINARY with amd64, arm64 or arm")
        binary = Path(path).read_bytes()
        check_binary(binary, architecture, Path(path))
        image = layout.image(dockerfile, architecture, binary)
        images.append(image)
        parts, provenance = (Path(f"{path}.{end}.json").read_bytes() for end in ("cdx", "provenance"))
        statements.append(layout.statements(image, parts, provenance))
    index: dict[str, object] = {"schemaVersion": 2, "mediaType": f"{OCI}.index.v1+json", "manifests": images + statements}
    names = {"io.containerd.image.name": "docker.io/library/sedge:latest", "org.opencontainers.image.ref.name": "latest"}
    layout.write(arguments.output, layout.put(f"{OCI}.index.v1+json", index, annotations=names))


def main() -> None:
    """Reads the arguments and writes the archive."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", type=Path)
    parser.add_argument("--architecture", choices=sorted(MACHINES))
    parser.add_argument(
        "--index", nargs="+", metavar="ARCHITECTURE=BINARY", help="beside each are BINARY.cdx.json and BINARY.provenance.json"
    )
    parser.add_argument("--output", type=Path, required=True)
    arguments = parser.parse_args()
    dockerfile = Path(__file__).with_name("Dockerfile").read_text()
    if arguments.index:
        write_index(arguments, dockerfile)
        return
    if not arguments.binary or not arguments.architecture:
        parser.error("--binary and --architecture are needed, or --index")

    binary = arguments.binary.read_bytes()
    check_binary(binary, arguments.architecture, arguments.binary)
    layer = layer_of(binary)
    digest = hashlib.sha256(layer).hexdigest()
    config = json.dumps(configuration(dockerfile, arguments.architecture, digest), sort_keys=True).encode()
    config_name = f"{hashlib.sha256(config).hexdigest()}.json"
    manifest = [{"Config": config_name, "RepoTags": ["sedge:latest"], "Layers": [f"{digest}/layer.tar"]}]
    with tarfile.open(arguments.output, mode="w") as tar:
        add(tar, config_name, config, 0o644)
        add(tar, f"{digest}/layer.tar", layer, 0o644)
        add(tar, "manifest.json", json.dumps(manifest).encode(), 0o644)
    print(f"{arguments.output}: {len(binary) / 1e6:.1f} MB binary, {arguments.architecture}")


if __name__ == "__main__":
    main()
