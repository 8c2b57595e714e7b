"""Nodes on the emulated network of `sedge bench net`: links with rate and delay that can be cut."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

from apart import Apart
from cluster import wait_for


class Emulated(Apart):
    """One node in each namespace of an emulated network; this process reaches all of them outside of it."""

    def __init__(self, binary: Path, folder: Path, count: int, *options: str) -> None:
        self.binary, self.count = binary, count
        self.emulator = subprocess.Popen(
            [str(binary), "bench", "net", "--nodes", str(count), "--json", *options],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.processes: list[subprocess.Popen[bytes]] = []
        try:
            self.plan = self._plan()
            for node in range(count):
                self._start(folder, node)
            wait_for("all nodes are ready", lambda: all(self.ready(node) for node in range(count)), 30)
        except BaseException:
            self.stop()
            raise

    def _plan(self) -> dict[str, Any]:
        """The plan that the emulator prints: one JSON object, whose last line is a bare bracket."""
        lines: list[str] = []
        assert self.emulator.stdout and self.emulator.stderr
        while not lines or lines[-1].rstrip("\n") != "}":
            line = self.emulator.stdout.readline()
            assert line, f"the emulator ended: {self.emulator.stderr.read()}"
            lines.append(line)
        plan: dict[str, Any] = json.loads("".join(lines))
        return plan

    def _start(self, folder: Path, node: int) -> None:
        environment = {
            **os.environ,
            "SEDGE_AUTH__ANONYMOUS": "always",
            "SEDGE_CLUSTER__KEY": "a key for this test only",
            "SEDGE_CLUSTER__BIND": self.site(node),
            # Messages that wait for copies while nodes are cut off arrive late: these tests are about the network.
            "SEDGE_CLUSTER__COPIES": "1",
            "SEDGE_CLUSTER__SEEDS": ",".join(f"{self.site(one)}:7883" for one in range(self.count)),
            "SEDGE_HTTP__BIND": self.address(node),
            "SEDGE_NODE__DATA_DIR": str(folder / f"node-{node}"),
        }
        with open(folder / f"node-{node}.log", "wb") as log:
            self.processes.append(subprocess.Popen(
                ["ip", "netns", "exec", self.namespace(node), str(self.binary), "serve"], env=environment, stderr=log))

    def namespace(self, node: int) -> str:
        """The node's network namespace."""
        return str(self.plan["nodes"][node]["namespace"])

    def site(self, node: int) -> str:
        """The node's address on the emulated network."""
        return str(self.plan["nodes"][node]["site"])

    def address(self, node: int) -> str:
        """The node's address for this process."""
        return str(self.plan["nodes"][node]["host"])

    @property
    def socket(self) -> str:
        """Where the emulator takes requests."""
        return str(self.plan["control"])

    def ask(self, *words: str) -> str:
        """Has a request done by another process, as a person would; gives its output."""
        done = subprocess.run(
            [str(self.binary), "bench", "net", "--json", "--control", self.socket, *words],
            capture_output=True, text=True, timeout=20)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def links(self) -> dict[tuple[int, int], dict[str, Any]]:
        """The emulator's status of every direction of every link, by nodes counted from 1."""
        return {(link["from"], link["to"]): link for link in json.loads(self.ask("status"))["links"]}

    def stop(self) -> tuple[int, str]:
        """Ends the emulator, which takes the nodes with it; its exit status and its notes."""
        self.emulator.terminate()
        _, notes = self.emulator.communicate(timeout=30)
        for process in self.processes:
            process.wait(10)
        return self.emulator.returncode, notes
