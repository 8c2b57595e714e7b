"""The driver kubernetes of `sedge scale`.

`./test kubernetes` builds a real Kubernetes API server and its controller of stateful sets for these; elsewhere a small fake takes their place.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from cluster import HOST, wait_for
from fakekube import FakePlane
from kube import NAMESPACE, SET, TOKEN, ControlPlane, Kubelet, Plane
from scaling import SITE, Idlers, Site, cycles, has_haproxy, spread
from swarm import Swarm

PROGRAMS = os.environ.get("SEDGE_KUBERNETES", "")
pytestmark = pytest.mark.skipif(not has_haproxy(), reason="haproxy is not installed")


@pytest.fixture
def plane(tmp_path: Path) -> Iterator[Plane]:
    """A control plane without nodes."""
    made: Plane = ControlPlane(Path(PROGRAMS), tmp_path) if PROGRAMS else FakePlane(tmp_path)
    yield made
    made.close()


@pytest.fixture
def kubelet(plane: Plane, binary: Path, tmp_path: Path) -> Iterator[Kubelet]:
    """The kubelet that runs the pods of the set."""
    (tmp_path / "pods").mkdir()
    made = Kubelet(plane, binary, tmp_path / "pods")
    yield made
    made.close()


@pytest.fixture
def site(plane: Plane, kubelet: Kubelet, binary: Path, tmp_path: Path) -> Iterator[Site]:
    """A site whose nodes are the pods of the set."""
    made = of_set(plane, binary, tmp_path)
    yield made
    made.close()
    assert plane.replicas() == 0, "nothing of a deleted site runs"


def of_set(plane: Plane, binary: Path, folder: Path) -> Site:
    """A site file for the set, and the environment of its controller."""
    site = Site(binary, folder)
    site.env |= {"SEDGE_KUBERNETES_API": plane.api, "SEDGE_KUBERNETES_ACCOUNT": str(plane.account()), "SEDGE_API_TOKEN": TOKEN}
    write(site)
    return site


def write(site: Site, **changes: object) -> None:
    """The file: that of the other tests with another driver."""
    site.settings |= {"limits": f", statefulset: {SET}"} | changes
    text = SITE.format(port=site.port, **site.settings)
    site.file.write_text(text.replace("driver: process", "driver: kubernetes"))


def test_it_scales_a_stateful_set_and_loses_nothing(plane: Plane, kubelet: Kubelet, site: Site) -> None:
    """EL-07, EL-09, EL-15, EL-16, EL-19, EL-23: out and in with load; the last pod is emptied before it goes; sessions stay."""
    plane.install(1)
    write(site, cooldown="1s", high=30, low=18, most=2)
    site.start()
    site.wait_serving(1, 40)

    def sizes(wanted: int) -> None:
        assert plane.replicas() == wanted

    cycles(site, Swarm([(HOST, site.port)], random.Random(5), rate=30), Idlers(site.port), 2, sizes)
    assert kubelet.ended == [f"{SET}-1"] * 2


def test_pods_are_adopted_and_lost_ones_followed(plane: Plane, site: Site) -> None:
    """EL-22, EL-26: pods that ran before the controller; one that Kubernetes replaces; another controller."""
    plane.install(2)
    wait_for("both are pods", lambda: len(plane.call("GET", f"/api/v1/namespaces/{NAMESPACE}/pods")["items"]) == 2, 20)
    write(site, least=2)
    site.start()
    site.wait_serving(2, 60)
    before = {node["name"]: node["http"] for node in site.nodes()}
    plane.call("DELETE", f"/api/v1/namespaces/{NAMESPACE}/pods/{SET}-0")
    changed = lambda: {node["name"]: node["http"] for node in site.nodes() if node["state"] == "serving"}  # noqa: E731

    def is_replaced() -> bool:
        serving = changed()
        return len(serving) == 2 and serving["brokers-1"] != before["brokers-1"]

    wait_for("another pod serves in its place", is_replaced, 60)
    assert changed()["brokers-2"] == before["brokers-2"] and plane.replicas() == 2
    idlers = Idlers(site.port)
    idlers.open(10)
    wait_for("the balancer has followed", lambda: sorted(spread(site).values()) == [5, 5], 20)
    idlers.close()
    site.end_controller(signal.SIGKILL)
    there = changed()
    site.start()
    wait_for("a controller runs", lambda: site.status()["running"], 10)
    wait_for("it knows both", lambda: changed() == there, 20)


@pytest.mark.skipif(not PROGRAMS, reason="rights are the real server's: ./test kubernetes")
def test_what_is_missing_is_said(plane: Plane, binary: Path, tmp_path: Path) -> None:
    """EL-07: no set, no right, no server: each with what to do."""
    site = of_set(plane, binary, tmp_path)

    def refused(**env: str) -> str:
        command = [binary, "scale", "run", site.file, "--once"]
        done = subprocess.run(command, env=site.env | env, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 1, done.stderr
        return done.stderr

    assert "allow it to get pods" in refused()
    plane.install(1)
    write(site, limits=", statefulset: other")
    assert f"there is no StatefulSet other in the namespace {NAMESPACE}" in refused()
    write(site, limits=f", statefulset: elsewhere/{SET}")
    assert "allow it to get pods" in refused()
    assert "does not answer" in refused(SEDGE_KUBERNETES_API=f"https://{HOST}:1")
    assert "write http://HOST:PORT" in refused(SEDGE_KUBERNETES_API="here")
    environment = {name: value for name, value in site.env.items() if not name.startswith(("SEDGE_KUBERNETES_API", "KUBERNETES_"))}
    site.env = environment
    assert "kubectl proxy" in refused()
