"""Certificates for tests, made with openssl."""

from __future__ import annotations

import subprocess
from pathlib import Path


def openssl(directory: Path, *arguments: str) -> None:
    """Runs openssl in a directory."""
    subprocess.run(["openssl", *arguments], cwd=directory, check=True, capture_output=True)


def authority(directory: Path, name: str) -> None:
    """A certificate that may sign others: NAME.crt and NAME.key."""
    openssl(directory, "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2",
            "-subj", f"/CN={name}", "-keyout", f"{name}.key", "-out", f"{name}.crt")


def sign(directory: Path, ca: str, name: str, subject: str) -> None:
    """A certificate of `subject` that `ca` has signed, for localhost: NAME.crt and NAME.key."""
    (directory / "ext").write_text("subjectAltName=DNS:localhost,IP:127.0.0.1\n")
    openssl(directory, "req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-subj", f"/CN={subject}",
            "-keyout", f"{name}.key", "-out", f"{name}.csr")
    openssl(directory, "x509", "-req", "-in", f"{name}.csr", "-CA", f"{ca}.crt", "-CAkey", f"{ca}.key", "-CAcreateserial",
            "-days", "2", "-extfile", "ext", "-out", f"{name}.crt")
