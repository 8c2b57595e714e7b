"""A Docker engine of the tests' own, with an image of the binary and one of HAProxy that nothing is pulled for."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tarfile
import time
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).parents[2]
SYSCTL = Path("/proc/sys/net/bridge/bridge-nf-call-iptables")


def missing() -> str:
    """Why there can be no engine here; nothing if there can."""
    if os.geteuid() != 0:
        return "a Docker engine needs root"
    for program in ("dockerd", "docker", "docker-compose", "iptables", "haproxy"):
        if shutil.which(program, path=f"{os.environ['PATH']}:/usr/sbin") is None:
            return f"{program} is not installed"
    if not image().exists():
        return f"{image()} is missing: deploy/image.sh"
    return ""


def image() -> Path:
    """The archive that deploy/image.sh makes."""
    return Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "sedge-image-amd64.tar"


class Engine:
    """A running engine, which a command may start elsewhere: `within` ends where the program's name follows."""

    def __init__(self, folder: Path, *, within: Sequence[str] = ()) -> None:
        self.folder = folder
        self.host = f"unix://{folder}/docker.sock"
        self.env = os.environ | {"DOCKER_HOST": self.host}
        log = (folder / "dockerd.log").open("wb")
        self.process = subprocess.Popen(
            [*within, "dockerd", "--data-root", folder / "data", "--exec-root", folder / "exec", "-H", self.host, "-p", folder / "pid"],
            stdout=log, stderr=log,
        )
        deadline = time.monotonic() + 30
        while subprocess.run(["docker", "version"], env=self.env, capture_output=True, check=False).returncode != 0:
            assert self.process.poll() is None and time.monotonic() < deadline, (folder / "dockerd.log").read_text()[-2000:]
            time.sleep(0.1)
        # Else this engine's rules apply to every bridge of the machine.
        if SYSCTL.exists():
            SYSCTL.write_text("0")
        self.docker("load", "--quiet", "--input", str(image()))

    def docker(self, *arguments: str) -> str:
        """Runs docker."""
        return self.run("docker", *arguments)

    def run(self, *command: str, **env: str) -> str:
        """Runs a program that finds this engine."""
        done = subprocess.run(command, env=self.env | env, capture_output=True, text=True, timeout=180, check=False)
        assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
        return done.stdout

    def import_haproxy(self) -> str:
        """An image of this machine's HAProxy and the libraries it needs."""
        program = shutil.which("haproxy", path=f"{os.environ['PATH']}:/usr/sbin")
        assert program
        archive = self.folder / "haproxy.tar"
        listed = subprocess.run(["ldd", program], capture_output=True, text=True, check=True).stdout
        words = [word for line in listed.splitlines() for word in line.split() if word.startswith("/")]
        with tarfile.open(archive, "w") as tar:
            tar.add(program, "usr/sbin/haproxy")
            for word in sorted(set(words)):
                tar.add(os.path.realpath(word), word.lstrip("/"))
            for folder in ("tmp", "etc/haproxy"):
                info = tarfile.TarInfo(folder)
                info.type, info.mode = tarfile.DIRTYPE, 0o1777
                tar.addfile(info)
        self.docker("import", "--change", "ENV PATH=/usr/sbin", str(archive), "haproxy:tests")
        return "haproxy:tests"

    def stop(self) -> None:
        """Ends the engine and all its containers."""
        listed = self.docker("ps", "-aq").split()
        if listed:
            self.docker("rm", "-f", "-v", *listed)
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(30)
