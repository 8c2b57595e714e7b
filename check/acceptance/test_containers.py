"""Containers on a real Docker engine: the image, the compose file, the docker driver of `sedge scale`.

`./test containers` makes the image and runs these; elsewhere they are skipped.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from chaos import judge
from cluster import HOST, free_base, wait_for
from engine import Engine, missing
from scaling import Idlers, Site, cycles, spread
from swarm import Swarm

WANTED = os.environ.get("SEDGE_CONTAINERS") == "1"
pytestmark = pytest.mark.skipif(not WANTED, reason="a run of its own: ./test containers")
DEPLOY = Path(__file__).parents[2] / "deploy"
KEY = "0123456789abcdef0123456789abcdef"


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    """A Docker engine."""
    why = missing()
    if why:
        pytest.skip(why)
    made = Engine(tmp_path_factory.mktemp("d"))
    yield made
    made.stop()


class Compose:
    """The compose file, running."""

    def __init__(self, engine: Engine, haproxy: str) -> None:
        self.engine, self.port = engine, free_base(1)[0]
        self.env = {"SEDGE_KEY": KEY, "SEDGE_PORT": str(self.port), "HAPROXY_IMAGE": haproxy, "SEDGE_ANONYMOUS": "always"}

    def call(self, *arguments: str) -> str:
        """Runs docker-compose."""
        return self.engine.run("docker-compose", "-p", "test", "-f", str(DEPLOY / "compose.yml"), *arguments, **self.env)

    def container(self, service: str) -> str:
        """The container of a service."""
        return self.call("ps", "-q", service).strip()

    def health(self, service: str) -> str:
        """The health of a service, as the engine says."""
        return self.engine.docker("inspect", "--format", "{{.State.Health.Status}}", self.container(service)).strip()


def test_compose_starts_a_cluster_behind_one_address(engine: Engine) -> None:
    """OP-02, FT-35, FT-36, FT-37, OP-05: up, healthy, spread, a node killed, each node replaced under load; nothing is lost."""
    compose = Compose(engine, engine.import_haproxy())
    compose.call("up", "-d")
    try:
        nodes = [f"node-{number}" for number in range(1, 5)]
        wait_for("all nodes are healthy", lambda: all(compose.health(node) == "healthy" for node in nodes), 60)
        idlers = Idlers(compose.port)
        idlers.open(40)

        def members() -> int:
            said = engine.docker("exec", compose.container("node-1"), "/sedge", "status", "--json")
            return int(json.loads(said)["members"])

        wait_for("they are one cluster", lambda: members() == 4, 20)
        connections = [
            json.loads(engine.docker("exec", compose.container(node), "/sedge", "status", "--json"))["connections"] for node in nodes
        ]
        assert sorted(connections) == [10] * 4, connections
        idlers.close()

        swarm = Swarm([(HOST, compose.port)], random.Random(3), rate=20)
        try:
            swarm.until("all subscribe", lambda: all(one.subscribed for one in swarm.subscribers), 20)
            swarm.until("all publishers are there", lambda: all(one.here for one in swarm.publishers), 20)
            swarm.loaded = True
            engine.docker("kill", "--signal", "KILL", compose.container("node-2"))
            swarm.run(3.0)
            for node in nodes:
                # As in a rolling update, the old container says good-bye and ends, and another one comes with its data.
                compose.call("up", "-d", "--no-deps", "--force-recreate", node)
                swarm.until(f"{node} is healthy", lambda node=node: compose.health(node) == "healthy", 60)
                swarm.run(1.0)
            swarm.settle(15)
        finally:
            swarm.close()
        verdict = judge(swarm)
        assert verdict.is_clean(), f"{verdict}\n{swarm.story()}"
    finally:
        compose.call("down", "-v", "-t", "5")
    assert engine.docker("ps", "-aq") == ""


DOCKER_SITE = """\
driver: docker
resources:
  net: {{type: network}}
  image: {{type: image, ref: "sedge:latest"}}
  brokers: {{type: group, member: {{type: broker, config: open.toml, image: "${{image}}", net: "${{net}}", cpu: 0.5, memory: 256MiB}}, min: 1, max: 3}}
  lb: {{type: loadbalancer, backend: "${{brokers}}", algorithm: leastconn, port: {port}}}
  high: {{type: alarm, metric: connections, of: "${{brokers}}", period: 2s, op: ">", threshold: 50, action: "${{out}}"}}
  low: {{type: alarm, metric: connections, of: "${{brokers}}", period: 2s, op: "<", threshold: 5, action: "${{in}}"}}
  out: {{type: policy, group: "${{brokers}}", adjust: +1, cooldown: 5s}}
  in: {{type: policy, group: "${{brokers}}", adjust: -1, cooldown: 5s}}
"""


def test_the_docker_driver_scales_containers(engine: Engine, binary: Path, tmp_path: Path) -> None:
    """EL-04, EL-07, EL-09, EL-15, EL-16, EL-26 with containers: out, in, a killed one replaced, nothing left."""
    site = Site(binary, tmp_path)
    site.env |= {"DOCKER_HOST": engine.host}
    site.file.write_text(DOCKER_SITE.format(port=site.port))
    (site.folder / "open.toml").write_text("[auth]\nanonymous = \"always\"\n")
    site.start()
    try:
        site.wait_serving(1, 40)
        idlers = Idlers(site.port)
        idlers.open(60)

        def even() -> bool:
            idlers.turn()
            found = spread(site)
            return len(found) == 2 and min(found.values()) >= 24

        wait_for("a second container has its share", even, 40)
        victim = engine.docker("ps", "-q", "--filter", "name=brokers-2").strip()
        engine.docker("kill", "--signal", "KILL", victim)
        wait_for("it is gone", lambda: site.serving() == 1, 20)
        wait_for("it is replaced", lambda: site.serving() == 2, 30)
        idlers.close()
        site.wait_serving(1, 60)
        assert len(engine.docker("ps", "-aq").split()) == 1
    finally:
        site.close()
    assert engine.docker("ps", "-aq") == ""
    assert site.folder.name not in engine.docker("network", "ls") and "brokers" not in engine.docker("network", "ls")


def test_a_rule_raises_the_processors_of_a_container(engine: Engine, binary: Path, tmp_path: Path) -> None:
    """EL-20: the limit of a container that runs is raised by a rule, and the container is the same one."""
    site = Site(binary, tmp_path)
    site.env |= {"DOCKER_HOST": engine.host}
    text = DOCKER_SITE.format(port=site.port).replace("adjust: +1", "resize: {cpu: +0.25, min: 0.5, max: 1}")
    site.file.write_text(text.replace("adjust: -1", "resize: {cpu: -0.25, min: 0.5, max: 1}"))
    (site.folder / "open.toml").write_text("[auth]\nanonymous = \"always\"\n")
    site.start()
    try:
        site.wait_serving(1, 40)
        container = engine.docker("ps", "-q", "--filter", "name=brokers-1").strip()

        def limit() -> str:
            return engine.docker("inspect", "--format", "{{.HostConfig.NanoCpus}}", container).strip()

        assert limit() == "500000000"
        idlers = Idlers(site.port)
        idlers.open(60)
        wait_for("it may use a whole processor", lambda: limit() == "1000000000", 60)
        assert idlers.answer() == 60 and idlers.returned == 0
        assert engine.docker("ps", "-q").strip() == container
        idlers.close()
    finally:
        site.close()


def test_a_driver_without_its_engine_says_so(binary: Path, tmp_path: Path) -> None:
    """EL-07: the error names the missing engine, and where it was looked for."""
    site = Site(binary, tmp_path)
    site.env |= {"DOCKER_HOST": f"unix://{tmp_path}/nobody.sock"}
    site.file.write_text(DOCKER_SITE.format(port=site.port))
    began = time.monotonic()
    done = subprocess.run([binary, "scale", "run", site.file], env=site.env, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1 and "no Docker engine answers at unix://" in done.stderr, done.stderr
    assert time.monotonic() - began < 10


def test_the_swarm_driver_scales_a_service_and_loses_nothing(engine: Engine, binary: Path, tmp_path: Path) -> None:
    """EL-07, EL-09, EL-15, EL-16, EL-23, EL-26 with a swarm: out, in, a task that died followed, nothing lost, nothing left."""
    site = Site(binary, tmp_path)
    site.env |= {"DOCKER_HOST": engine.host}
    text = DOCKER_SITE.format(port=site.port).replace("driver: docker", "driver: swarm").replace("threshold: 50", "threshold: 30")
    site.file.write_text(text.replace("threshold: 5,", "threshold: 18,").replace("max: 3", "max: 2").replace("cooldown: 5s", "cooldown: 1s"))
    (site.folder / "open.toml").write_text("[auth]\nanonymous = \"always\"\n")
    command = [binary, "scale", "run", site.file, "--once"]
    done = subprocess.run(command, env=site.env, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1 and "docker swarm init" in done.stderr, done.stderr
    engine.docker("swarm", "init", "--advertise-addr", HOST, "--listen-addr", f"{HOST}:{free_base(1)[0]}", "--default-addr-pool", "172.31.0.0/16")
    try:
        site.start()
        site.wait_serving(1, 60)
        cycles(site, Swarm([(HOST, site.port)], random.Random(5), rate=20), Idlers(site.port), 2)
        running = engine.docker("ps", "-q").split()
        assert len(running) == 1
        before = site.nodes()[0]["http"]
        engine.docker("kill", "--signal", "KILL", running[0])
        wait_for("its successor serves", lambda: site.serving() == 1 and site.nodes()[0]["http"] != before, 60)
    finally:
        site.close()
        left = engine.docker("service", "ls", "-q") + engine.docker("config", "ls", "-q") + engine.docker("network", "ls", "--filter", "name=site", "-q")
        engine.docker("swarm", "leave", "--force")
    assert left == ""
