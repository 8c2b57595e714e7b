"""The commands under "Run it for real" in the README work as they are printed, between machines."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path

import pytest

from apart import can_make_namespaces
from cluster import wait_for
from netns import Islands

README = Path(__file__).parents[2] / "README.md"


def blocks() -> tuple[str, list[str]]:
    """The configuration, and the commands: once, on each machine, from another one."""
    section = README.read_text().split("## Run it for real")[1].split("\n## ")[0]
    found = dict.fromkeys(["toml", "sh"], "")
    for kind in found:
        found[kind] = "\0".join(re.findall(rf"```{kind}\n(.*?)```", section, re.S))
    return found["toml"], found["sh"].split("\0")


class Gateways(Islands):
    """Two machines with nodes and one without; each knows the others by name, and has /etc/sedge in a folder of its own."""

    def _wire_up(self) -> None:
        super()._wire_up()
        names = {self.address(node): f"gw-{node + 1}.site" for node in range(2)}
        for node in range(self.count):
            self._etc(node).mkdir(parents=True)
            (self._etc(node) / "hosts").write_text("".join(f"{address} {name}\n" for address, name in names.items()))
        configuration, (once, _, _) = blocks()
        for node in range(2):
            (self.folder / f"{node}/etc/sedge").mkdir(parents=True)
            (self.folder / f"{node}/etc/sedge/sedge.toml").write_text(self.there(node, configuration))
        subprocess.run(["sh", "-ec", self.there(0, once)], input="secret\n", text=True, check=True, capture_output=True)
        for name in ("cluster.key", "passwords"):
            shutil.copy(self.folder / f"0/etc/sedge/{name}", self.folder / f"1/etc/sedge/{name}")

    def there(self, node: int, text: str) -> str:
        """The same on a machine whose root is a folder, with the program that is tested."""
        text = re.sub(r"/(etc|var/lib)/sedge", lambda found: f"{self.folder}/{node}{found[0]}", text)
        return re.sub(r"^sedge ", f"{self.binary} ", text, flags=re.M)

    def _process(self, node: int) -> subprocess.Popen[bytes]:
        space = ["ip", "netns", "exec", f"{self.tag}n{node}"]
        if node == 2:
            return subprocess.Popen([*space, "sleep", "600"])
        check, serve = self.there(node, blocks()[1][1]).strip().splitlines()
        subprocess.run([*space, "sh", "-c", check], check=True, capture_output=True)
        environment = {key: value for key, value in os.environ.items() if not key.startswith("SEDGE_")}
        with open(self.folder / f"node-{node}.log", "wb") as log:
            return subprocess.Popen([*space, *serve.split()], env=environment, stdout=log, stderr=log)

    def ready(self, node: int) -> bool:
        """Whether it has said so."""
        return node == 2 or "ready:" in (self.folder / f"node-{node}.log").read_text()

    def _etc(self, node: int) -> Path:
        """The folder that `ip netns exec` lays over /etc."""
        return Path("/etc/netns") / f"{self.tag}n{node}"

    def stop(self) -> None:
        """Also takes the names away."""
        try:
            super().stop()
        finally:
            for node in range(self.count):
                shutil.rmtree(self._etc(node), ignore_errors=True)


def test_the_figures_are_those_that_the_command_makes() -> None:
    """The README's table has the rows of `check/figures`, which it names, and no others."""
    place = Path(__file__).parents[1] / "figures"
    loader = SourceFileLoader("figures", str(place))
    module = module_from_spec(spec_from_loader("figures", loader))  # type: ignore[arg-type]
    loader.exec_module(module)
    table = README.read_text().split(module.BEGIN)[1].split(module.END)[0]
    rows = [line.split(" | ")[0].removeprefix("| ") for line in table.splitlines() if line.startswith("| ") and line != "| | |"]
    assert tuple(rows) == module.ROWS
    assert "`check/figures --binary target/release/sedge`" in table


@pytest.mark.skipif(not can_make_namespaces(), reason="no network namespaces may be made here")
def test_the_example_for_real_use_serves_other_machines(binary: Path, tmp_path: Path) -> None:
    """The files and commands as printed: a message of an account crosses the cluster, and strangers are kept out."""
    site = Gateways(binary, tmp_path, 3)
    try:
        subscribe, publish = blocks()[1][2].strip().splitlines()
        at = ["ip", "netns", "exec", f"{site.tag}n2", "sh", "-c"]

        def crosses() -> bool:
            with subprocess.Popen([*at, f"exec {subscribe} -C 1 -W 5"], stdout=subprocess.PIPE, text=True) as reader:
                while reader.poll() is None:
                    subprocess.run([*at, publish], check=True, capture_output=True, timeout=20)
                    try:
                        reader.wait(0.1)
                    except subprocess.TimeoutExpired:
                        continue
                return reader.stdout is not None and reader.stdout.read() == "hello/world hi\n"

        wait_for("a message crosses the cluster", crosses, 30)
        for stranger in (publish.replace("secret", "wrong"), publish.replace("-u anna -P secret ", "")):
            assert stranger != publish
            refused = subprocess.run([*at, stranger], capture_output=True, timeout=20, check=False)
            assert refused.returncode != 0, stranger
    finally:
        site.stop()
