#!/usr/bin/env python3
"""Checks an OCI archive of an image index, as `deploy/image.sh index` makes it, without any code of its maker.

Usage: deploy/check_image_index.py ARCHIVE      exits with 1 and says what is wrong
Every blob has the digest and size that its descriptor says, and is asked for by one; there is an image for each of amd64, arm64 and arm/v7,
whose only program is static and for that machine; beside each are its parts list and its provenance.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import sys
import tarfile
from pathlib import Path
from typing import Any

# Platform, and e_machine and class of ELF.
WANTED = {("linux", "amd64", None): (62, 2), ("linux", "arm64", None): (183, 2), ("linux", "arm", "v7"): (40, 1)}
PREDICATES = {"https://cyclonedx.org/bom", "https://slsa.dev/provenance/v1"}
INDEX = "application/vnd.oci.image.index.v1+json"
MANIFEST = "application/vnd.oci.image.manifest.v1+json"


class Archive:
    """The files of an archive, and which blobs were asked for."""

    def __init__(self, path: Path) -> None:
        with tarfile.open(path) as tar:
            members = [member for member in tar if member.isfile()]
            self.files = {member.name: tar.extractfile(member).read() for member in members}  # type: ignore[union-attr]
        assert len(self.files) == len(members), "a file is there twice"
        self.used: set[str] = set()

    def blob(self, descriptor: dict[str, Any]) -> bytes:
        """The blob that a descriptor names, as long and with the digest as it says."""
        kind, digest = descriptor["digest"].split(":")
        name = f"blobs/{kind}/{digest}"
        data = self.files[name]
        self.used.add(name)
        assert len(data) == descriptor["size"], f"{name} has {len(data)} bytes, not {descriptor['size']}"
        assert hashlib.sha256(data).hexdigest() == digest, f"{name} has another digest"
        return data

    def document(self, descriptor: dict[str, Any], kind: str) -> dict[str, Any]:
        """A blob that is JSON and of a kind."""
        assert descriptor["mediaType"] == kind, descriptor
        found: dict[str, Any] = json.loads(self.blob(descriptor))
        return found


def check_program(program: bytes, machine: int, size: int) -> None:
    """It is for this machine and needs no other file."""
    assert program[:4] == b"\x7fELF" and program[4] == size, "not an ELF program of this class"
    assert int.from_bytes(program[18:20], "little") == machine, f"machine {int.from_bytes(program[18:20], 'little')}, not {machine}"
    word = 8 if size == 2 else 4
    table = int.from_bytes(program[24 + word : 24 + 2 * word], "little")
    at = 54 if size == 2 else 42
    entry, count = (int.from_bytes(program[one : one + 2], "little") for one in (at, at + 2))
    kinds = [int.from_bytes(program[table + number * entry :][:4], "little") for number in range(count)]
    assert 1 in kinds and 3 not in kinds, f"not static: segments {kinds}"


def check_image(archive: Archive, descriptor: dict[str, Any], machine: int, size: int) -> None:
    """One image."""
    manifest = archive.document(descriptor, MANIFEST)
    config = json.loads(archive.blob(manifest["config"]))
    platform = descriptor["platform"]
    assert {key: config.get(key) for key in ("os", "architecture", "variant")} == {
        key: platform.get(key) for key in ("os", "architecture", "variant")
    }, config
    assert config["config"]["Entrypoint"] == ["/sedge"] and config["config"]["User"] == "65532:65532", config
    (layer,) = manifest["layers"]
    content = gzip.decompress(archive.blob(layer))
    assert config["rootfs"]["diff_ids"] == [f"sha256:{hashlib.sha256(content).hexdigest()}"], "the layer is another one"
    with tarfile.open(fileobj=io.BytesIO(content)) as tar:
        assert sorted(tar.getnames()) == ["data", "sedge"], tar.getnames()
        assert tar.getmember("sedge").mode == 0o755 and tar.getmember("data").uid == 65532
        check_program(tar.extractfile("sedge").read(), machine, size)  # type: ignore[union-attr]


def check_statements(archive: Archive, descriptor: dict[str, Any], image: str) -> None:
    """What is said of one image is said of it and no other."""
    assert descriptor["annotations"]["vnd.docker.reference.type"] == "attestation-manifest", descriptor
    manifest = archive.document(descriptor, MANIFEST)
    archive.blob(manifest["config"])
    found = set()
    for layer in manifest["layers"]:
        statement = archive.document(layer, "application/vnd.in-toto+json")
        assert statement["predicateType"] == layer["annotations"]["in-toto.io/predicate-type"], layer
        assert [f"sha256:{one['digest']['sha256']}" for one in statement["subject"]] == [image], statement["subject"]
        assert statement["predicate"], statement["predicateType"]
        found.add(statement["predicateType"])
    assert found == PREDICATES, found


def check(path: Path) -> None:
    """The whole archive."""
    archive = Archive(path)
    assert json.loads(archive.files["oci-layout"]) == {"imageLayoutVersion": "1.0.0"}
    (top,) = json.loads(archive.files["index.json"])["manifests"]
    manifests = archive.document(top, INDEX)["manifests"]
    images = {}
    for descriptor in manifests[: len(WANTED)]:
        platform = descriptor["platform"]
        wanted = (platform["os"], platform["architecture"], platform.get("variant"))
        assert wanted in WANTED and wanted not in images, f"an image for {wanted}"
        check_image(archive, descriptor, *WANTED[wanted])
        images[wanted] = descriptor["digest"]
    assert images.keys() == WANTED.keys(), images
    said = {one["annotations"]["vnd.docker.reference.digest"]: one for one in manifests[len(WANTED) :]}
    assert sorted(said) == sorted(images.values()) and len(manifests) == 2 * len(WANTED), "not one set of statements for each image"
    for image, descriptor in said.items():
        assert descriptor["platform"] == {"architecture": "unknown", "os": "unknown"}, descriptor
        check_statements(archive, descriptor, image)
    left = archive.files.keys() - archive.used - {"oci-layout", "index.json"}
    assert not left, f"nothing asks for {sorted(left)}"


def main() -> None:
    """Reads the argument and checks."""
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    try:
        check(Path(sys.argv[1]))
    except (AssertionError, KeyError, ValueError, OSError, tarfile.TarError) as wrong:
        sys.exit(f"{sys.argv[1]}: {type(wrong).__name__}: {wrong}")


if __name__ == "__main__":
    main()
