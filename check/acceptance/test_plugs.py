"""`sedge bench plugs` (small: this proves that the experiment works, nothing else)."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from cluster import HOST, free_base
from scaling import has_control_groups, has_haproxy

pytestmark = pytest.mark.skipif(not has_haproxy(), reason="haproxy is not installed")
SMALL = "--houses 1 --ramp 0.3 --idle 0.2 --repeat 1 --period 2 --cooldown 2 --shrink 60"


def processes_with(text: str) -> list[int]:
    """Processes whose command line has this text."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and int(entry.name) != os.getpid() and text.encode() in (entry / "cmdline").read_bytes():
                found.append(int(entry.name))
        except OSError:
            continue
    return found


def listens(port: int) -> bool:
    """Whether somebody listens there; the port itself is not free at once, since its connections wait for stray packets."""
    with socket.socket() as probe:
        return probe.connect_ex((HOST, port)) == 0


def plugs(binary: Path, folder: Path, words: str) -> Any:
    """The report of the experiment; nothing that the experiment started is left."""
    port = free_base(1)[0]
    command = [str(binary), "bench", "plugs", *words.split(), *SMALL.split(), "--port", str(port)]
    files = ["--csv", str(folder / "plugs.csv"), "--html", str(folder / "plugs.html")]
    env = os.environ | {"TMPDIR": str(folder)}
    done = subprocess.run([*command, *files, "--json", "--quiet"], env=env, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr
    assert not list(folder.glob("sedge-bench-plugs-*"))
    assert processes_with(str(folder / "sedge-bench-plugs-")) == []
    assert not listens(port)
    return json.loads(done.stdout)


@pytest.mark.parametrize(("scenario", "clients"), [("publish", 91), ("subscribe", 91)])
def test_plugs_complete_on_clusters_of_fixed_size(binary: Path, tmp_path: Path, scenario: str, clients: int) -> None:
    """BM-13, BM-14, EL-04: both scenarios through HAProxy on one and two nodes, closed loop, nothing lost or twice."""
    report = plugs(binary, tmp_path, f"{scenario} --modes fixed,single --max 2 --cpu 0 --interval 100 --seconds 1")
    assert [(run["mode"], run["nodes"]) for run in report["runs"]] == [("fixed", 1), ("fixed", 2), ("single", 1)]
    for run in report["runs"]:
        assert (run["clients"], run["messages"], run["lost"], run["duplicates"]) == (clients, 900, 0, 0), run
        assert {point["nodes"] for point in run["points"]} == {run["nodes"]}, run["points"]
    # Ten messages at twice the interval: the interval is a lower bound, and no publisher catches up on late messages.
    assert all(run["completion_s"] >= 1.8 for run in report["runs"] if run["mode"] == "fixed")
    assert [row["nodes"] for row in report["completion"]] == [1, 2]
    assert report["completion"][1]["source_percent"] == (-25.0 if scenario == "publish" else None)
    lines = (tmp_path / "plugs.csv").read_text().splitlines()
    assert lines[0].startswith("figure,scenario,mode") and len(lines) > 3
    assert "Figure 8" in (tmp_path / "plugs.html").read_text() or scenario == "subscribe"


def test_plugs_make_a_cluster_grow_and_shrink(binary: Path, tmp_path: Path) -> None:
    """BM-13, EL-15, EL-16, EL-18, EL-19, EL-23: saturated, one node more, back to one; QoS 2 neither lost nor twice."""
    if not has_control_groups():
        pytest.skip("no control groups that can be written")
    report = plugs(binary, tmp_path, "publish --modes elastic --max 2 --cpu 0.05 --interval 10 --seconds 3")
    [run] = report["runs"]
    assert (run["messages"], run["lost"], run["duplicates"]) == (27_000, 0, 0), run
    sizes = [(change["from"], change["to"]) for change in run["changes"]]
    assert sizes[0] == (1, 2) and sizes[-1] == (2, 1), sizes
    assert all(point["nodes"] <= 2 for point in run["points"])
    assert max(point["nodes"] for point in run["points"]) == 2 and run["points"][-1]["nodes"] == 1
    assert run["saturated_s"] is not None
    assert max(point["cpu_percent"] or 0 for point in run["points"] if point["at_s"] >= 0) > 80
    assert run["shrunk_s"] > run["changes"][-1]["at_s"]


def test_an_interrupted_experiment_leaves_nothing(binary: Path, tmp_path: Path) -> None:
    """BM-13: nodes and HAProxy outlive their controller, but not the experiment."""
    port = free_base(1)[0]
    command = [str(binary), "bench", "plugs", "publish", *SMALL.split(), "--modes", "single", "--cpu", "0", "--seconds", "600"]
    env = os.environ | {"TMPDIR": str(tmp_path)}
    running = subprocess.Popen([*command, "--port", str(port), "--quiet"], env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    ours = str(tmp_path / "sedge-bench-plugs-")
    deadline = time.monotonic() + 30
    try:
        while not listens(port):
            assert running.poll() is None and time.monotonic() < deadline, "HAProxy does not start"
            time.sleep(0.05)
    finally:
        running.kill()
        running.wait()
    while processes_with(ours) or listens(port):
        assert time.monotonic() < deadline, processes_with(ours)
        time.sleep(0.05)


def test_an_impossible_flag_is_named(binary: Path) -> None:
    """BM-13: the error has the flag, its value, and the possible values."""
    done = subprocess.run([str(binary), "bench", "plugs", "--houses", "0"], capture_output=True, text=True, timeout=20, check=False)
    assert done.returncode != 0 and "--houses 0: 1 to 400" in done.stderr
