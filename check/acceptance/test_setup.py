"""Behaviour of `./run` and `./test` on a machine without Rust: the set-up is theirs."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]
# Stand-in for rustup: a toolchain is there when it was asked for.
RUSTUP = """#!/bin/sh
echo "$*" >> "$HOME/calls"
case "$1" in
  run) grep -qs "^toolchain install $2" "$HOME/calls" || [ "$2" = "$HAVE" ] || exit 1
       [ "$3" = rustc ] && echo "rustc $IS (x)"; exit 0 ;;
esac
"""
INSTALLER = f"""
mkdir -p "$HOME/.cargo/bin"
cat > "$HOME/.cargo/bin/rustup" <<'END'
{RUSTUP}
END
chmod +x "$HOME/.cargo/bin/rustup"
echo 'PATH="$HOME/.cargo/bin:$PATH"' > "$HOME/.cargo/env"
"""


@pytest.fixture
def bare(tmp_path: Path) -> dict[str, str]:
    """The environment of a user who has no Rust; `curl` gives out an installer that needs no network."""
    tools = tmp_path / "bin"
    tools.mkdir()
    for tool in ("bash", "sh", "sed", "sort", "head", "cut", "grep", "cat", "mkdir", "chmod", "id", "dpkg-query"):
        found = shutil.which(tool)
        if found:
            (tools / tool).symlink_to(found)
    (tools / "curl").write_text(f"#!/bin/sh\necho curl >> \"$HOME/calls\"\ncat <<'CURL'\n{INSTALLER}\nCURL\n")
    (tools / "curl").chmod(0o755)
    return {"HOME": str(tmp_path), "PATH": str(tools)}


def set_up(environment: dict[str, str]) -> tuple[int, str, list[str]]:
    """Runs the common beginning of both scripts; returns its output, and the programs that it has called."""
    command = ["bash", "-c", ". scripts/need.sh; need_rust && echo toolchain=${RUSTUP_TOOLCHAIN:-pinned}"]
    done = subprocess.run(command, cwd=REPOSITORY, env=environment, capture_output=True, text=True, timeout=30, check=False)
    calls = Path(environment["HOME"]) / "calls"
    return done.returncode, done.stdout + done.stderr, calls.read_text().splitlines() if calls.exists() else []


def pinned() -> str:
    """The version that rust-toolchain.toml names."""
    lines = (REPOSITORY / "rust-toolchain.toml").read_text().splitlines()
    return next(line.split('"')[1] for line in lines if line.startswith("channel"))


def test_rust_is_installed_for_the_user_and_it_is_said(bare: dict[str, str]) -> None:
    """Without Rust: rustup, then the pinned toolchain with the components that the tests need; both are announced. The second time nothing is."""
    code, said, calls = set_up(bare)
    assert code == 0 and said.endswith("toolchain=pinned\n"), said
    assert "installing Rust" in said and f"installing the Rust toolchain {pinned()}" in said
    assert "curl" in calls and any(call.startswith(f"toolchain install {pinned()}") and "clippy" in call for call in calls), calls
    code, said, again = set_up(bare)
    assert (code, said) == (0, "toolchain=pinned\n")
    assert again.count("curl") == 1


def test_nothing_is_installed_against_the_users_will(bare: dict[str, str]) -> None:
    """`SEDGE_NO_INSTALL=1` names the missing program and the command that installs it, and does nothing."""
    code, said, calls = set_up({**bare, "SEDGE_NO_INSTALL": "1"})
    assert code == 1 and not calls
    assert "SEDGE_NO_INSTALL=1" in said and "please run: curl" in said and pinned() in said


def test_the_same_version_by_another_name_is_used(bare: dict[str, str]) -> None:
    """A machine whose `stable` is the pinned version fetches nothing."""
    subprocess.run(["sh", "-c", INSTALLER], env=bare, check=True)
    code, said, calls = set_up({**bare, "HAVE": "stable", "IS": pinned(), "SEDGE_NO_INSTALL": "1"})
    assert (code, said) == (0, "toolchain=stable\n")
    code, said, calls = set_up({**bare, "HAVE": "stable", "IS": "1.2.3", "SEDGE_NO_INSTALL": "1"})
    assert code == 1 and f"rustup toolchain install {pinned()}" in said
    assert not any(call.startswith("toolchain") for call in calls)
