"""A newcomer's walk: docs/two-machines.md as printed, with two machines in network namespaces and this one as the network's third."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from urllib.error import HTTPError, URLError

import pytest

from apart import can_make_namespaces
from cluster import HOST, free_base, get, wait_for

PAGE = Path(__file__).parents[2] / "docs/two-machines.md"
RULES = Path(__file__).parents[2] / "deploy/prometheus/rules.yml"
PATHS = f"{os.environ['PATH']}:/usr/sbin:/usr/bin:/sbin:/bin"
# Commands that need the packages or a service manager.
NOT_HERE = ("apt ", "scp ", "chgrp ", "systemctl ")

needed = can_make_namespaces() and all(shutil.which(program, path=PATHS) for program in ("keepalived", "prometheus", "openssl"))
pytestmark = pytest.mark.skipif(not needed, reason="needs root, network namespaces, keepalived, prometheus and openssl")


def ip(*words: str, check: bool = True) -> str:
    """Runs `ip`."""
    return subprocess.run(["ip", *words], check=check, capture_output=True, text=True).stdout


def blocks() -> dict[str, list[str]]:
    """The page's blocks by their first line, which is a comment, without it."""
    found: dict[str, list[str]] = {}
    for block in re.findall(r"```\w+\n(.*?)```", PAGE.read_text(), re.DOTALL):
        first, _, rest = block.partition("\n")
        found.setdefault(first.removeprefix("# "), []).append(rest)
    return found


class Site:
    """Two machines on one network."""

    def __init__(self, binary: Path, folder: Path) -> None:
        self.binary, self.folder = binary, folder
        self.tag = f"nc{os.getpid() % 10_000}"
        self.net = f"10.{150 + os.getpid() % 40}.{os.getpid() // 40 % 250}"
        self.running: dict[str, subprocess.Popen[bytes]] = {}
        ip("link", "add", f"{self.tag}br", "type", "bridge")
        ip("addr", "add", f"{self.net}.254/24", "dev", f"{self.tag}br")
        ip("link", "set", f"{self.tag}br", "up")
        for machine in (1, 2):
            space = self.space(machine)
            ip("netns", "add", space)
            ip("link", "add", f"{space}v", "type", "veth", "peer", "name", "eth0", "netns", space)
            ip("link", "set", f"{space}v", "master", f"{self.tag}br", "up")
            ip("-n", space, "link", "set", "lo", "up")
            ip("-n", space, "link", "set", "eth0", "up")
            ip("-n", space, "addr", "add", f"{self.net}.1{machine}/24", "dev", "eth0")
            ip("-n", space, "route", "add", "224.0.0.0/4", "dev", "eth0")
            for name in ("etc/sedge", "etc/keepalived", "var/lib"):
                (self.root(machine) / name).mkdir(parents=True)

    def space(self, machine: int) -> str:
        """Name of the machine's namespace."""
        return f"{self.tag}{machine}"

    def root(self, machine: int) -> Path:
        """Stands for / of the machine."""
        return self.folder / f"gw-{machine}"

    def here(self, text: str, machine: int) -> str:
        """A text of the page with addresses and folders of this test."""
        text = text.replace("192.168.1.", f"{self.net}.").replace("/usr/bin/sedge", str(self.binary))
        return re.sub(r"/(etc/(?:sedge|keepalived)|var/lib/sedge)", rf"{self.root(machine)}/\1", text)

    def put(self, machine: int, path: str, change: tuple[str, str] = ("", "")) -> None:
        """A file of the page."""
        (text,) = blocks()[path]
        target = self.root(machine) / path.lstrip("/")
        target.write_text(self.here(text, machine).replace(*change))
        target.chmod(0o600)

    def do(self, machine: int, heading: str, typed: bytes) -> None:
        """Commands of the page that are run on a machine."""
        for commands in blocks()[heading]:
            lines = [line for line in commands.splitlines() if not line.startswith(NOT_HERE)]
            script = self.here("\n".join(lines), machine).replace("sedge passwd", f"{self.binary} passwd")
            done = subprocess.run(["ip", "netns", "exec", self.space(machine), "bash", "-e", "-c", script], input=typed, capture_output=True, timeout=60, check=False)
            assert done.returncode == 0, done.stderr

    def start(self, name: str, machine: int, *command: str) -> None:
        """A service."""
        with (self.folder / f"{name}-{machine}.log").open("ab") as log:
            process = subprocess.Popen(["ip", "netns", "exec", self.space(machine), *command], env={**os.environ, "PATH": PATHS}, stdout=log, stderr=log, start_new_session=True)
        self.running[f"{name}-{machine}"] = process

    def start_node(self, machine: int) -> None:
        """The node, checked before as the unit does it."""
        config = str(self.root(machine) / "etc/sedge/sedge.toml")
        subprocess.run([str(self.binary), "config", "check", "-c", config], check=True, capture_output=True)
        self.start("node", machine, str(self.binary), "serve", "-c", config, "--name", f"gw-{machine}")

    def start_keepalived(self, machine: int) -> None:
        """Starts the program that holds the address."""
        root, program = self.root(machine), shutil.which("keepalived", path=PATHS)
        assert program
        files = [word for flag, name in (("-p", "pid"), ("-r", "vrrp.pid"), ("-c", "check.pid")) for word in (flag, str(root / name))]
        self.start("keepalived", machine, program, "-n", "-l", "-P", "-f", str(root / "etc/keepalived/keepalived.conf"), *files)

    def holds_address(self, machine: int) -> bool:
        """Whether the common address is at this machine."""
        return f"{self.net}.10/" in ip("-n", self.space(machine), "addr", "show", "dev", "eth0")

    def client(self, command: str) -> list[str]:
        """A command of the page for any machine."""
        (text,) = [text for text in blocks()["on any machine"] if text.startswith(command)]
        words = subprocess.run(["bash", "-c", f"printf '%s\\n' {self.here(text, 1).strip()}"], capture_output=True, text=True, check=True).stdout.split("\n")[:-1]
        return [str(self.binary), *words[1:]]

    def end(self, name: str) -> None:
        """kill -9."""
        process = self.running.pop(name)
        os.killpg(process.pid, signal.SIGKILL)
        process.wait(10)

    def stop(self) -> None:
        """Ends everything and takes the network down."""
        for name in list(self.running):
            self.end(name)
        for machine in (1, 2):
            ip("netns", "del", self.space(machine), check=False)
        ip("link", "del", f"{self.tag}br", check=False)


@pytest.fixture
def site(binary: Path, tmp_path: Path) -> Iterator[Site]:
    """The network."""
    made = Site(binary, tmp_path)
    yield made
    made.stop()


def answer(url: str, token: str | None = None) -> tuple[int, bytes]:
    """Status and body."""
    request = urllib.request.Request(url, headers={"Authorization": f"Bearer {token}"} if token else {})
    try:
        with urllib.request.urlopen(request, timeout=5) as got:
            return got.status, got.read()
    except HTTPError as error:
        return error.code, b""
    except (URLError, OSError):
        return 0, b""


def prometheus(site: Site) -> str:
    """A Prometheus with the page's configuration on this machine; its address."""
    (text,) = blocks()["/etc/prometheus/prometheus.yml"]
    folder = site.folder / "prometheus"
    folder.mkdir()
    (folder / "prometheus.yml").write_text(site.here(text, 1).replace("5s", "1s"))
    # Only the wait is shorter than for a real site: three seconds instead of fifteen.
    (folder / "rules.yml").write_text(RULES.read_text().replace("for: 15s", "for: 3s"))
    port, _, _ = free_base(1)
    program = shutil.which("prometheus", path=PATHS)
    assert program
    with (folder / "log").open("wb") as log:
        command = [program, f"--config.file={folder}/prometheus.yml", f"--storage.tsdb.path={folder}/data", f"--web.listen-address={HOST}:{port}"]
        site.running["prometheus"] = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)
    wait_for("prometheus is ready", lambda: answer(f"http://{HOST}:{port}/-/ready")[0] == 200, 30)
    return f"http://{HOST}:{port}"


def test_two_machines_and_one_address(site: Site, tmp_path: Path) -> None:
    """Accounts, TLS, one address, dashboard, a session that moves with the address when its node is killed, an alert that says so."""
    site.do(1, "on gw-1", b"secret\n")
    site.put(1, "/etc/sedge/sedge.toml")
    for file in (site.root(1) / "etc/sedge").iterdir():
        shutil.copy(file, site.root(2) / "etc/sedge")
    site.put(2, "/etc/sedge/sedge.toml")
    site.put(1, "/etc/keepalived/keepalived.conf")
    site.put(2, "/etc/keepalived/keepalived.conf", ("priority 150", "priority 100"))
    token = (site.root(1) / "etc/sedge/http.token").read_text().strip()
    service = f"{site.net}.10"
    shutil.copy(site.root(1) / "etc/sedge/ca.crt", tmp_path)
    for machine in (1, 2):
        site.start_node(machine)

    def found() -> bool:
        bodies = [answer(f"http://{site.net}.1{machine}:8080/api/v1/cluster", token) for machine in (1, 2)]
        return all(status == 200 and body.count(b'"synced":true') == 1 for status, body in bodies)

    wait_for("the machines have found each other", found, 40)
    for machine in (1, 2):
        site.start_keepalived(machine)
    wait_for("the address is at the first machine", lambda: site.holds_address(1) and not site.holds_address(2), 40)
    # The dashboard: the page is for everybody, its data for those with the token.
    wait_for("the address answers", lambda: answer(f"http://{service}:8080/")[0] == 200, 20)
    assert answer(f"http://{service}:8080/api/v1/status")[0] == 401
    assert answer(f"http://{service}:8080/api/v1/status", token)[0] == 200
    server = prometheus(site)

    def pub(message: str) -> bool:
        command = [*site.client("sedge pub")[:-1], message]
        return subprocess.run(command, cwd=tmp_path, capture_output=True, timeout=30, check=False).returncode == 0

    stranger = ["wrong" if word == "secret" else word for word in site.client("sedge pub")]
    assert subprocess.run(stranger, cwd=tmp_path, capture_output=True, timeout=30, check=False).returncode != 0
    listen = [*site.client("sedge sub"), "-W", "120"]
    with subprocess.Popen(listen, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as wall:
        try:
            assert wall.stdout
            subscribed = f"http://{site.net}.11:8080/metrics"
            wait_for("the subscriber is there", lambda: re.search(rb"^sedge_subscription_bytes [1-9]", answer(subscribed)[1], re.MULTILINE), 30)
            assert pub("hi")
            assert wall.stdout.readline() == "hello/world hi\n"
            site.end("node-1")
            wait_for("the address moves", lambda: site.holds_address(2) and not site.holds_address(1), 30)
            wait_for("the service answers again", lambda: pub("again"), 60)
            while (line := wall.stdout.readline()) == "hello/world hi\n":
                pass
            assert line == "hello/world again\n"
        finally:
            wall.terminate()
    victim = f"{site.net}.11:8080"

    def told() -> bool:
        alerts = get(f"{server}/api/v1/alerts")["data"]["alerts"]
        return any(alert["labels"]["alertname"] == "SedgeNodeDown" and alert["labels"]["instance"] == victim and alert["state"] == "firing" for alert in alerts)

    wait_for("the alert fires", told, 60)
    site.start_node(1)
    wait_for("the machine that is back joins and takes the address again", lambda: found() and site.holds_address(1), 60)
    assert pub("all is well")
