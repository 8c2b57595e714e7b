"""Wrong configuration: a clear message and exit code, never a stack trace."""

from __future__ import annotations

import socket
import subprocess
from pathlib import Path

import pytest

from cluster import HOST, free_base, get, wait_for


def serve(binary: Path, tmp_path: Path, toml: str, *flags: str) -> tuple[int, str]:
    """Exit code and stderr of `sedge serve` with this configuration; it must end by itself."""
    config = tmp_path / "sedge.toml"
    config.write_text(toml)
    done = subprocess.run([str(binary), "serve", "-c", str(config), *flags], capture_output=True, text=True, timeout=20)
    assert "panicked" not in done.stderr and "RUST_BACKTRACE" not in done.stderr, done.stderr
    return done.returncode, done.stderr


@pytest.mark.parametrize(("toml", "words"), [
    ("[mqtt]\nprot = 1883\n", ["sedge.toml:2", "prot", "port"]),
    ("[mqtt]\nport = 70000\n", ["sedge.toml:2", "port"]),
    ("[mqtt]\nport = \"abc\"\n", ["sedge.toml:2", "port"]),
    ("[clutser]\nname = \"x\"\n", ["sedge.toml:1", "clutser", "cluster"]),
    ("[cluster]\noverlay = \"mash\"\n", ["sedge.toml:2", "mash", "mesh"]),
    ("[mqtt\n", ["sedge.toml:1"]),
    ("[cluster]\nseeds = [\"nowhere:port\"]\n", ["sedge.toml:2", "seeds", "nowhere:port"]),
])
def test_a_wrong_file_is_refused_with_line_key_and_nearest_name(binary: Path, tmp_path: Path, toml: str, words: list[str]) -> None:
    """Unknown keys, wrong types, impossible values."""
    code, text = serve(binary, tmp_path, toml)
    assert code == 2, text
    assert all(word in text for word in words), text


def test_a_port_in_use_is_named(binary: Path, tmp_path: Path) -> None:
    """Exit code 3, with address and the key to change."""
    port, http, cluster = free_base(1)
    with socket.socket() as taken:
        taken.bind((HOST, port))
        taken.listen()
        code, text = serve(binary, tmp_path, f"[mqtt]\nport = {port}\n[http]\nport = {http}\n[cluster]\nport = {cluster}\n")
    assert code == 3 and str(port) in text and "mqtt" in text and "in use" in text, text


def test_an_unwritable_data_directory_is_named(binary: Path, tmp_path: Path) -> None:
    """Exit code 3, with the path and the key."""
    (tmp_path / "file").write_text("not a folder")
    port, http, cluster = free_base(1)
    code, text = serve(binary, tmp_path, (
        f"[node]\ndata_dir = \"{tmp_path}/file/data\"\n[mqtt]\nport = {port}\n[http]\nport = {http}\n[cluster]\nport = {cluster}\n"))
    assert code == 3 and "data_dir" in text and "file/data" in text, text


def test_a_missing_file_is_named(binary: Path) -> None:
    """Exit code 2."""
    done = subprocess.run([str(binary), "serve", "-c", "/nowhere/sedge.toml"], capture_output=True, text=True, timeout=20)
    assert done.returncode == 2 and "/nowhere/sedge.toml" in done.stderr


def test_an_unreachable_seed_is_reported_and_does_not_stop_the_node(binary: Path, tmp_path: Path) -> None:
    """The node serves alone, says so in its log and in its status."""
    port, http, cluster = free_base(2)
    log = tmp_path / "log"
    with log.open("w") as stderr:
        process = subprocess.Popen(
            [str(binary), "serve", "--port", str(port), "--http-port", str(http), "--cluster-port", str(cluster),
             "--data-dir", str(tmp_path / "data"), "--seed", f"{HOST}:{cluster + 1}"], stderr=stderr)
        try:
            wait_for("the node is ready", lambda: _ready(http), 20)
            assert f"{HOST}:{cluster + 1}" in str(get(f"http://{HOST}:{http}/api/v1/status")["unreached_seeds"])
            wait_for("the seed is named in the log", lambda: f"{HOST}:{cluster + 1}" in log.read_text())
        finally:
            process.terminate()
            assert process.wait(10) == 0


def _ready(http: int) -> bool:
    try:
        return bool(get(f"http://{HOST}:{http}/health/ready"))
    except OSError:
        return False
