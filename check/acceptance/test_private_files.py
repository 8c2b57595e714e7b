"""Permissions of the files that a node and the commands write."""

from __future__ import annotations

import os
import stat
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from cluster import Cluster
from durable import Node


@pytest.fixture(autouse=True)
def open_umask() -> Iterator[None]:
    """The umask of most shells, which processes of this test inherit."""
    before = os.umask(0o022)
    yield
    os.umask(before)


def open_ones(folder: Path) -> list[str]:
    """The paths below a folder, itself included, for which group or others have any right. Who cannot enter the folder reaches no socket in it."""
    paths = [folder, *(path for path in folder.rglob("*") if not path.is_socket())]
    return [f"{path} {path.stat().st_mode & 0o777:o}" for path in paths if path.stat().st_mode & (stat.S_IRWXG | stat.S_IRWXO)]


def test_nobody_else_can_read_the_data_of_a_node(make_node: Callable[..., Node]) -> None:
    """SEC: data directory, journal, its segments and listings are 0700 and 0600 whatever the umask is."""
    node = make_node("journal")
    node.client("a").publish("topic", "secret", qos=1, retain=True)
    assert list(node.data.rglob("*.log"))
    assert open_ones(node.data) == []


def test_a_journal_that_others_could_read_is_closed_at_the_next_start(make_node: Callable[..., Node]) -> None:
    """SEC: a directory that was open is closed, and the log says so; a data directory that an administrator opened is named."""
    node = make_node("journal")
    node.stop()
    (node.data / "journal").chmod(0o755)
    node.data.chmod(0o755)
    node.start()
    assert (node.data / "journal").stat().st_mode & 0o777 == 0o700
    said = node.log.read_text()
    assert "others could read the journal" in said and f"chmod 700 {node.data}" in said


def test_nobody_else_can_read_the_logs_of_up(make_cluster: Callable[..., Cluster]) -> None:
    """SEC: files that `sedge up` leaves name clients and topics."""
    cluster = make_cluster(2)
    logs = list(cluster.data.rglob("log"))
    assert len(logs) == 2
    assert open_ones(cluster.data) == []


def test_passwd_keeps_owner_group_and_mode(binary: Path, tmp_path: Path) -> None:
    """SEC: a service that could read the file can read it after a change by root, `-c` included; a new file is its owner's only."""
    file = tmp_path / "passwords"

    def passwd(*arguments: str) -> str:
        return subprocess.run([str(binary), "passwd", *arguments], check=True, timeout=20, capture_output=True, text=True).stderr

    said = passwd("-b", "-c", str(file), "anna", "secret")
    assert file.stat().st_mode & 0o777 == 0o600
    owner, group = os.getuid(), os.getgid()
    if owner == 0:
        assert "chgrp" in said
        owner, group = 65_534, 65_534
        os.chown(file, owner, group)
    file.chmod(0o640)
    for arguments in (("-b", str(file), "bob", "secret"), ("-D", str(file), "bob"), ("-b", "-c", str(file), "carol", "secret")):
        passwd(*arguments)
        found = file.stat()
        assert (found.st_uid, found.st_gid, found.st_mode & 0o777) == (owner, group, 0o640), arguments
