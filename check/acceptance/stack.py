"""A Docker swarm of machines: each is an engine in a network namespace with a name of its own; the stack file runs on it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from cluster import wait_for
from engine import ROOT, Engine
from netns import Spaces

FILE, ENCRYPTED = ROOT / "deploy/stack.yml", ROOT / "deploy/stack-encrypted.yml"
MANAGERS, WORKERS = 3, 2
SERVICE = "sedge_node"
# An engine has its state in its network namespace, and the stack file tells nodes apart by their machines' names. Not `ip netns exec`: it mounts
# a /sys without control groups.
WITHIN = ("nsenter", "--net=/run/netns/{space}", "unshare", "--uts", "sh", "-c", 'hostname "$0" && exec "$@"', "{name}")


def encrypts(space: str) -> bool:
    """Whether the kernel has ESP, which an encrypted overlay network needs."""
    state = ("src", "192.0.2.1", "dst", "192.0.2.2", "proto", "esp", "spi", "256")
    key = ("mode", "transport", "aead", "rfc4106(gcm(aes))", f"0x{'00' * 20}", "64")
    command = ["ip", "-n", space, "xfrm", "state"]
    if subprocess.run([*command, "add", *state, *key], capture_output=True, check=False).returncode != 0:
        return False
    subprocess.run([*command, "delete", *state], capture_output=True, check=True)
    return True


class Machines(Spaces):
    """Three managers and two workers of one swarm; the nodes of the stack are at the workers."""

    def __init__(self, folder: Path) -> None:
        self._name(MANAGERS + WORKERS)
        self.folder = folder
        self.engines: dict[int, Engine] = {}
        self.env: dict[str, str] = {}
        try:
            self._wire_up()
            for number in range(self.count):
                self.engines[number] = self._engine(number)
            self._join()
        except BaseException:
            self.stop()
            raise

    def space(self, number: int) -> str:
        """The namespace of a machine."""
        return f"{self.tag}n{number}"

    def name(self, number: int) -> str:
        """The name of a machine."""
        return f"manager-{number + 1}" if number < MANAGERS else f"worker-{number - MANAGERS + 1}"

    def _engine(self, number: int) -> Engine:
        folder = self.folder / self.name(number)
        folder.mkdir()
        return Engine(folder, within=[word.format(space=self.space(number), name=self.name(number)) for word in WITHIN])

    def _join(self) -> None:
        def here(number: int) -> tuple[str, ...]:
            address = self.address(number)
            return "--advertise-addr", address, "--listen-addr", f"{address}:2377"

        first = self.engines[0]
        first.docker("swarm", "init", *here(0), "--default-addr-pool", "172.31.0.0/16")
        for number in range(1, self.count):
            token = first.docker("swarm", "join-token", "-q", "manager" if number < MANAGERS else "worker").strip()
            self.engines[number].docker("swarm", "join", *here(number), "--token", token, f"{self.address(0)}:2377")

    # --- questions to a manager ---

    @property
    def manager(self) -> Engine:
        """A manager that runs."""
        return next(engine for number, engine in self.engines.items() if number < MANAGERS)

    def leader(self) -> int:
        """Number of the manager that leads the others; -1 if none does."""
        command = ["docker", "node", "ls", "--format", "{{.Hostname}} {{.ManagerStatus}}"]
        listed = subprocess.run(command, env=self.manager.env, capture_output=True, text=True, timeout=60, check=False).stdout
        leaders = [line.split()[0] for line in listed.splitlines() if line.endswith(" Leader")]
        return next((number for number in self.engines if [self.name(number)] == leaders), -1)

    def deploy(self, *files: Path, **env: str) -> None:
        """Deploys the stack as the head of its file says, with further files."""
        self.env |= env
        # Older clients never wait, and have no word for it.
        detach = ["--detach=true"] if "--detach" in self.manager.docker("stack", "deploy", "--help") else []
        named = [word for file in (FILE, *files) for word in ("-c", str(file))]
        self.manager.run("docker", "stack", "deploy", *detach, "--resolve-image", "never", *named, "sedge", **self.env)

    def wait_one_cluster(self) -> None:
        """Until the node of each worker lets clients in, and all are members of one cluster."""
        try:
            wait_for("the nodes of all workers are one cluster", self.one_cluster, 120)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.tasks()}\n{self.logs()}") from error

    def update_state(self) -> str:
        """The state of the update that the manager does or did last."""
        service = json.loads(self.manager.docker("service", "inspect", SERVICE))[0]
        return str(service.get("UpdateStatus", {}).get("State", ""))

    def tasks(self) -> str:
        """All tasks that there were, for the message of a test that fails."""
        return self.manager.docker("service", "ps", "--no-trunc", SERVICE)

    # --- the nodes ---

    @property
    def workers(self) -> dict[int, Engine]:
        """The engines where nodes run."""
        return {number: engine for number, engine in self.engines.items() if number >= MANAGERS}

    def clients(self) -> list[tuple[str, int]]:
        """Where clients connect."""
        return [(self.address(number), 1883) for number in self.workers]

    def containers(self) -> list[str]:
        """The containers that run, over all workers."""
        return [found for engine in self.workers.values() for found in engine.docker("ps", "-q", "--no-trunc").split()]

    def processes(self) -> list[int]:
        """The process of each node."""
        inspected = [json.loads(engine.docker("inspect", engine.docker("ps", "-q").strip())) for engine in self.workers.values()]
        return [int(found[0]["State"]["Pid"]) for found in inspected]

    def healthy(self) -> list[str]:
        """The container of each worker if all are healthy; nothing otherwise."""
        found = [engine.docker("ps", "-q", "--no-trunc", "--filter", "health=healthy").split() for engine in self.workers.values()]
        return [containers[0] for containers in found if len(containers) == 1] if all(len(containers) == 1 for containers in found) else []

    def statuses(self) -> list[dict[str, Any]]:
        """The status of each node."""
        return [json.loads(engine.docker("exec", engine.docker("ps", "-q").strip(), "/sedge", "status", "--json")) for engine in self.workers.values()]

    def one_cluster(self) -> list[str]:
        """The container of each worker if all are healthy, let clients in and are one cluster; nothing otherwise."""
        found = self.healthy()
        whole = found and all(status["ready"] and status["members"] == WORKERS for status in self.statuses())
        return found if whole else []

    def logs(self) -> str:
        """The last log lines of the nodes, for the message of a test that fails."""
        parts = [subprocess.run(["docker", "logs", "--tail", "40", found], env=engine.env, capture_output=True, text=True, check=False)
                 for engine in self.workers.values() for found in engine.docker("ps", "-aq").split()]
        return "\n".join(part.stdout + part.stderr for part in parts)

    # --- the end ---

    def kill(self, number: int) -> None:
        """A machine stops without a word: kill -9 of its engine, and of the processes that the engine started."""
        engine = self.engines.pop(number)
        engine.process.kill()
        engine.process.wait(10)
        self._kill_all(number)

    def _pids(self, number: int) -> list[int]:
        done = subprocess.run(["ip", "netns", "pids", self.space(number)], capture_output=True, text=True, check=False)
        return [int(pid) for pid in done.stdout.split()]

    def _kill_all(self, number: int) -> None:
        for pid in self._pids(number):
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        wait_for(f"nothing runs at {self.name(number)}", lambda: not self._pids(number), 10)

    def _mounts(self) -> Iterator[str]:
        for line in Path("/proc/self/mounts").read_text().splitlines():
            point = line.split()[1]
            if point.startswith(f"{self.folder}/"):
                yield point

    def left(self) -> list[str]:
        """Processes, mounts, namespaces and devices of these machines that are still there."""
        pids = [f"process {pid} of {self.name(number)}" for number in range(self.count) for pid in self._pids(number)]
        spaces = [f"namespace {found}" for found in os.listdir("/run/netns") if found.startswith(self.tag)]
        devices = [f"device {found}" for found in os.listdir("/sys/class/net") if found.startswith(self.tag)]
        return [*pids, *spaces, *devices, *(f"mount {point}" for point in self._mounts())]

    def remove(self) -> None:
        """Takes the stack off the swarm, as its user would."""
        self.manager.docker("stack", "rm", "sedge")
        wait_for("no container is left", lambda: not any(engine.docker("ps", "-aq") for engine in self.workers.values()), 60)
        wait_for("its network is gone", lambda: not self.manager.docker("network", "ls", "-q", "--filter", "name=sedge_cluster"), 60)

    def stop(self) -> None:
        """Ends everything, whatever state it is in."""
        for number in sorted(self.engines, reverse=True):
            engine = self.engines.pop(number)
            try:
                subprocess.run(["docker", "swarm", "leave", "--force"], env=engine.env, capture_output=True, timeout=60, check=False)
                engine.stop()
            except (AssertionError, subprocess.TimeoutExpired):
                engine.process.kill()
                engine.process.wait(10)
        for number in range(self.count):
            self._kill_all(number)
        for point in sorted(self._mounts(), reverse=True):
            subprocess.run(["umount", "--lazy", point], capture_output=True, check=False)
        self._take_down()
