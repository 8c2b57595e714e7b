"""Disks that are slow or full under nodes with journals."""

from __future__ import annotations

import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from client import Client, ClientError
from cluster import HOST, metric, wait_for
from durable import Node
from mqttwire import V5, V311, T

MIB = 1024 * 1024


@pytest.fixture
def slow_down() -> Iterator[Callable[[Node, float], None]]:
    """Lets every `fdatasync` of a node take longer, with strace."""
    strace = shutil.which("strace")
    if strace is None:
        pytest.skip("no strace here to slow the disk down with")
    tracers: list[subprocess.Popen[str]] = []

    def slow(node: Node, seconds: float) -> None:
        assert node.process
        command = [strace, "-f", "-qq", "-e", "trace=fdatasync", "-e", f"inject=fdatasync:delay_enter={int(seconds * 1e6)}"]
        tracer = subprocess.Popen([*command, "-o", "/dev/null", "-p", str(node.process.pid)], stderr=subprocess.PIPE, text=True)
        tracers.append(tracer)
        threads = list(Path(f"/proc/{node.process.pid}/task").iterdir())

        def is_traced() -> bool:
            if tracer.poll() is not None:
                pytest.skip(f"strace may not trace here: {tracer.stderr.read() if tracer.stderr else ''}")
            return all("TracerPid:\t0\n" not in (thread / "status").read_text() for thread in threads)

        wait_for("the tracer is there", is_traced)

    yield slow
    for tracer in tracers:
        tracer.terminate()
        tracer.wait(10)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 32 MiB."""
    place = tmp_path / "disk"
    place.mkdir()
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={32 * MIB}", "tmpfs", str(place)], capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"no file system may be mounted here: {done.stderr.strip()}")
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)


@pytest.mark.parametrize("shards", [1, 2])
def test_qos_0_does_not_wait_for_the_disk(
    make_node: Callable[..., Node], slow_down: Callable[[Node, float], None], shards: int
) -> None:
    """MQ-05: while a commit takes seconds, PUBACKs wait for it, and QoS 0 and pings do not, from any shard to any shard."""
    node = make_node("fsync", shards=shards)
    heavy = [node.client(f"heavy-{number}", V5) for number in range(4)]
    light = [node.client(f"light-{number}", V5) for number in range(4)]
    for number in range(4):
        heavy[number].subscribe(f"heavy/{number}", qos=1)
        light[number].subscribe(f"light/{number}", qos=1)
    slow_down(node, 3)
    begun = time.monotonic()
    for number in (0, 1):
        heavy[number].start_publish(f"heavy/{3 - number}", "h", qos=1)
    for turn in range(20):
        for number, client in enumerate(light):
            client.publish(f"light/{(number + turn) % 4}", f"{turn}-{number}")
        for number, client in enumerate(light):
            client.message(f"{turn}-{(number - turn) % 4}")
            client.ping()
    for client in heavy:
        with pytest.raises(ClientError):
            client.expect(T.PUBACK if client in heavy[:2] else T.PUBLISH, timeout=0.01)
    assert time.monotonic() - begun < 3, "the commit was over: nothing is shown"
    for number in (0, 1):
        heavy[number].expect(T.PUBACK, timeout=20)
        heavy[3 - number].message("h", timeout=20)


def answer_to(client: Client, qos: int) -> int | None:
    """Publishes something large; the reason code of the answer, `None` if there is none for a while."""
    pid = client.start_publish("fill/x", b"x" * 200_000, qos=qos)
    try:
        reason = client.expect(T.PUBACK if qos == 1 else T.PUBREC, timeout=1.5, pid=pid).reason
    except ClientError:
        return None
    if qos == 2 and reason < 0x80:
        client.release(pid)
    return reason


def test_a_full_disk_refuses_and_recovers(make_node: Callable[..., Node], small_disk: Path) -> None:
    """FT-34: the file system is filled to its last byte under load: QoS 1 and 2 are refused with 0x97 (3.1.1: the connection ends),
    QoS 0 goes on, the node stays up; with room it takes them again by itself; nothing acknowledged is lost, not even by kill -9."""
    node = make_node("fsync", shards=2, data=small_disk / "data")
    sleepers = [node.client(f"sleeper-{number}") for number in range(4)]
    for sleeper in sleepers:
        sleeper.subscribe("fill/#", qos=2)
        sleeper.drop()
    light = [node.client(f"light-{number}", clean=True, props={}) for number in range(4)]
    for client in light:
        client.subscribe("light", qos=0)
    speakers = [node.client(f"speaker-{number}", clean=True, props={}) for number in range(4)]
    old = Client(HOST, node.port, V311, timeout=10)
    old.connect("old", clean=True)
    taken = sum(answer_to(speaker, qos) == 0 for speaker in speakers for qos in (1, 2))
    assert taken == 8
    ballast = small_disk / "ballast"
    with open(ballast, "wb", buffering=0) as file:
        try:
            while True:
                file.write(b"b" * MIB)
        except OSError:
            pass
    # Publications between the last look at the disk and the next one wait for room without an answer; later ones have an answer.
    wait_for("the disk is full", lambda: metric(node.http, "sedge_journal_full", shard="0") == 1)
    for client in speakers:
        for qos in (1, 2):
            assert answer_to(client, qos) == 0x97
    for number, client in enumerate(light):
        client.publish("light", str(number))
        for reader in light:
            reader.message(str(number))
    old.start_publish("fill/x", b"x", qos=1)
    old.read_until_closed()
    assert metric(node.http, "sedge_journal_refused_total") >= 9
    status = subprocess.run([str(node.binary), "status", "--api", f"http://{HOST}:{node.http}"], capture_output=True, text=True, timeout=20, check=True)
    assert "normal, ready, but the journal has no room" in status.stdout, status.stdout
    ballast.unlink()
    wait_for("there is room", lambda: metric(node.http, "sedge_journal_full", shard="0") == 0)
    for client in speakers:
        assert [answer_to(client, qos) for qos in (1, 2)] == [0, 0]
        taken += 2
    node.kill()
    node.start()
    for sleeper in sleepers:
        again = node.client(sleeper.client_id)
        for _ in range(taken):
            again.message()
        again.nothing()
