"""Two HAProxies with one address: deploy/haproxy as it stands, on two machines that are network namespaces."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from cluster import wait_for
from scaling import has_haproxy

DEPLOY = Path(__file__).parents[2] / "deploy/haproxy"
CLIENT = """
import socket, sys
sock = socket.create_connection((sys.argv[1], 1883), timeout=1)
sock.sendall(bytes.fromhex("100d00044d5154540402000000017a"))
sys.exit(0 if sock.recv(4) == bytes.fromhex("20020000") else 1)
"""
ADDRESS, NODE = "10.83.7.100", "10.83.7.1"
needed = has_haproxy() and shutil.which("keepalived", path=f"{os.environ['PATH']}:/usr/sbin") and os.geteuid() == 0
pytestmark = pytest.mark.skipif(not needed, reason="needs root, haproxy and keepalived")


def run(*command: str) -> subprocess.CompletedProcess[str]:
    """Runs a program that has to succeed."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{command}: {done.stderr}"
    return done


class Machine:
    """A namespace with a balancer and keepalived."""

    def __init__(self, name: str, address: str, folder: Path, priority: int) -> None:
        self.name, self.folder = name, folder
        self.running: list[subprocess.Popen[bytes]] = []
        folder.mkdir()
        config = (DEPLOY / "haproxy.cfg").read_text().replace("/tmp/haproxy.sock", str(folder / "s"))
        lines = [line for line in config.splitlines() if not line.strip().startswith(("server ", "log "))]
        lines = [line.replace(" resolvers nodes init-addr none", "") for line in lines]
        (folder / "haproxy.cfg").write_text("\n".join([*lines, f"    server n1 {NODE}:1883", ""]))
        text = (DEPLOY / "keepalived.conf").read_text().replace("192.168.1.83/24", f"{ADDRESS}/24")
        text = text.replace("priority 150", f"priority {priority}")
        text = text if priority == 150 else text.replace("state MASTER", "state BACKUP")
        (folder / "keepalived.conf").write_text(text)
        self.address = address

    def start(self) -> None:
        """Starts both programs."""
        path = f"{os.environ['PATH']}:/usr/sbin"
        log = (self.folder / "log").open("ab")
        commands = [["haproxy", "-db", "-f", str(self.folder / "haproxy.cfg")],
                    ["keepalived", "-n", "-l", "-P", "-f", str(self.folder / "keepalived.conf"), "-p", str(self.folder / "pid"),
                     "-r", str(self.folder / "vrrp.pid"), "-c", str(self.folder / "checkers.pid")]]
        for command in commands:
            program = shutil.which(command[0], path=path)
            assert program
            self.running.append(subprocess.Popen(["ip", "netns", "exec", self.name, program, *command[1:]], stdout=log, stderr=log,
                                                 start_new_session=True))

    def has_address(self) -> bool:
        """Whether the common address is here."""
        return ADDRESS in run("ip", "-n", self.name, "addr", "show", "dev", "eth0").stdout

    def end(self) -> None:
        """Kills the machine's processes, as a power cut does."""
        for process in self.running:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        self.running.clear()


@pytest.fixture
def machines(binary: Path, tmp_path: Path) -> Iterator[list[Machine]]:
    """A node and two balancers, each in a namespace."""
    tag = f"vr{os.getpid() % 10_000}"
    bridge, names = f"{tag}br", [f"{tag}n", f"{tag}a", f"{tag}b"]
    run("ip", "link", "add", bridge, "type", "bridge")
    run("ip", "link", "set", bridge, "up")
    node, made = None, []
    try:
        for place, name in enumerate(names):
            run("ip", "netns", "add", name)
            run("ip", "link", "add", f"{name}v", "type", "veth", "peer", "name", "eth0", "netns", name)
            run("ip", "link", "set", f"{name}v", "master", bridge, "up")
            run("ip", "-n", name, "link", "set", "lo", "up")
            run("ip", "-n", name, "link", "set", "eth0", "up")
            run("ip", "-n", name, "addr", "add", f"10.83.7.{place + 1}/24", "dev", "eth0")
            run("ip", "-n", name, "route", "add", "224.0.0.0/4", "dev", "eth0")
        env = os.environ | {"SEDGE_AUTH__ANONYMOUS": "always", "SEDGE_HTTP__BIND": NODE, "SEDGE_MQTT__BIND": NODE}
        node = subprocess.Popen(["ip", "netns", "exec", names[0], binary, "serve"], env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        made = [Machine(names[1], "10.83.7.2", tmp_path / "a", 150), Machine(names[2], "10.83.7.3", tmp_path / "b", 100)]
        for machine in made:
            machine.start()
        yield made
    finally:
        for machine in made:
            machine.end()
        if node:
            node.kill()
            node.wait()
        for name in names:
            subprocess.run(["ip", "netns", "del", name], check=False, capture_output=True)
        subprocess.run(["ip", "link", "del", bridge], check=False, capture_output=True)


def test_the_standby_takes_the_address_over(machines: list[Machine]) -> None:
    """FT-44: the machine of the active balancer goes dark; clients connect through the other one, at the same address."""
    first, second = machines
    outside = first.name[:-1] + "n"

    def connects() -> bool:
        command = ["ip", "netns", "exec", outside, "python3", "-c", CLIENT, ADDRESS]
        return subprocess.run(command, capture_output=True, check=False).returncode == 0

    wait_for("clients connect through the first", lambda: first.has_address() and connects(), 30)
    assert not second.has_address()
    first.end()
    run("ip", "-n", first.name, "link", "set", "eth0", "down")
    wait_for("clients connect through the second", lambda: second.has_address() and connects(), 15)
