"""`sedge scale`: nodes come and go with the load behind one HAProxy, and nothing of it is lost."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from chaos import judge
from cluster import HOST, free_base, wait_for
from scaling import Idlers, Site, has_control_groups, has_haproxy, spread
from swarm import Swarm

pytestmark = pytest.mark.skipif(not has_haproxy(), reason="haproxy is not installed")
# Times that the cluster grows and shrinks under load.
CYCLES = int(os.environ.get("SEDGE_SCALE_CYCLES", "2"))


@pytest.fixture
def site(binary: Path, tmp_path: Path) -> Iterator[Site]:
    """A site that nothing is left of."""
    made = Site(binary, tmp_path)
    made.write()
    yield made
    made.close()


def test_it_grows_relieves_and_shrinks_and_leaves_nothing(site: Site) -> None:
    """EL-07, EL-09, EL-12, EL-15, EL-16, EL-19, EL-24: the example of the documents, from nothing to nothing."""
    site.start()
    site.wait_serving(1, 15)
    idlers = Idlers(site.port)
    idlers.open(60)
    began = time.monotonic()

    def even() -> bool:
        idlers.turn()
        found = spread(site)
        return len(found) == 2 and min(found.values()) >= 24

    wait_for("a second node has its share of clients that were there before it", even, 25)
    assert time.monotonic() - began < 20, "longer than a period, a start and a relief may take"
    assert idlers.returned <= 40, f"{idlers.returned} clients were moved, where 30 are enough"
    decision = site.status()["decisions"][-1]
    assert (decision["from"], decision["to"]) == (1, 2)
    assert "connections" in decision["reason"] and "> 50" in decision["reason"] and "alarm high" in decision["reason"]
    idlers.close()
    site.wait_serving(1, 30)
    kinds = {event["kind"] for event in site.status()["events"]}
    assert {"started", "stopped", "alarm", "decision", "action"} <= kinds, kinds
    site.end_controller()
    assert site.processes(), "nodes and load balancer outlive the controller"
    site.call("scale", "delete", str(site.file))
    assert site.processes() == []
    assert not list((site.folder / "state").iterdir())


def test_wrong_files_and_plans(site: Site) -> None:
    """EL-07, EL-08: line and field of a mistake; a plan acts on nothing and is empty of changes once it was carried out."""
    text = site.file.read_text()
    for wrong, found, said in [
        ("algorithm: leastconn", "algorithm: fastest", "line 5: resources.lb.algorithm"),
        ("min: 1, max: 3", "min: 4, max: 3", "line 4: resources.brokers.min: 4 is more than max"),
        ('action: "${out}"', 'action: "${outt}"', 'line 6: resources.high.action: there is no sound resource "outt"; did you mean'),
        ("driver: process", "driver: openstack", "line 1: driver"),
        ('group: "${brokers}", adjust: +1', 'group: "${high}", adjust: +1', "needs itself"),
    ]:
        bad = site.folder / "bad.yaml"
        bad.write_text(text.replace(wrong, found, 1))
        assert said in site.call("scale", "check", str(bad), code=2)
    steps = json.loads(site.call("scale", "plan", str(site.file), "--json"))["steps"]
    order = {step["name"]: step["wave"] for step in steps}
    assert order["brokers-1"] < order["lb"] and order["out"] < order["high"]
    assert site.processes() == []
    site.call("scale", "run", str(site.file), "--once")
    steps = json.loads(site.call("scale", "plan", str(site.file), "--json"))["steps"]
    assert {step["name"]: step["do"] for step in steps if step["name"] in ("brokers-1", "lb")} == {"brokers-1": "keep", "lb": "keep"}


def test_a_lost_node_and_a_lost_controller_are_replaced(site: Site) -> None:
    """EL-22, EL-26: the group has its size again; the next controller finds everything, and the balancer follows."""
    site.write(least=2)
    site.start()
    site.wait_serving(2, 15)
    victim = site.nodes()[0]
    os.kill(victim["pid"], signal.SIGKILL)
    wait_for("another process serves", lambda: site.serving() == 2 and site.nodes()[0]["pid"] != victim["pid"], 20)
    before = {node["name"]: node["pid"] for node in site.nodes()}
    balancer = site.status()["balancers"]["lb"]["pid"]
    site.end_controller(signal.SIGKILL)
    assert site.status()["running"] is False
    site.start()
    wait_for("a controller runs", lambda: site.status()["running"], 10)
    wait_for("it has adopted all", lambda: {node["name"]: node["pid"] for node in site.nodes()} == before, 10)
    assert site.status()["balancers"]["lb"]["pid"] == balancer
    os.kill(balancer, signal.SIGKILL)
    wait_for("haproxy runs again", lambda: site.status()["balancers"]["lb"]["pid"] != balancer, 15)
    idlers = Idlers(site.port)
    idlers.open(10)
    idlers.close()


def test_nodes_know_how_the_site_is_scaled_and_pass_orders_on(site: Site) -> None:
    """OP-04: the dashboard of any node shows the controller's report, at most a few seconds late; its two buttons stop and resume actions."""
    site.write(least=2)
    site.start()
    site.wait_serving(2, 15)
    wait_for("the controller has nothing to do", lambda: site.status()["converged"], 15)

    def told(number: int) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(site.ask(site.nodes()[number], "/api/v1/scale"))
        return found

    def is_told(number: int) -> bool:
        found, status = told(number), site.status()
        shown = found["report"] and found["heard_seconds"] <= 5 and found["report"]["groups"]["brokers"]
        return bool(shown) and {node["name"]: node["pid"] for node in shown["nodes"]} == {node["name"]: node["pid"] for node in status["groups"]["brokers"]["nodes"]}

    for number in (0, 1):
        wait_for(f"node {number} has been told", lambda number=number: is_told(number), 10)
    site.ask(site.nodes()[1], "/api/v1/scale/pause", "POST")
    wait_for("the controller has taken the order", lambda: site.status()["paused"], 10)
    victim = site.nodes()[0]
    os.kill(victim["pid"], signal.SIGKILL)

    def shows_the_loss() -> bool:
        report = told(1)["report"]
        states = {node["name"]: node["state"] for node in report["groups"]["brokers"]["nodes"]}
        return bool(report["paused"]) and states.get(victim["name"]) != "serving"

    wait_for("the other node shows the pause and the loss", shows_the_loss, 15)
    asked = told(1)["report"]["at_ms"]
    wait_for("the controller has had time to replace it", lambda: told(1)["report"]["at_ms"] > asked + 4_000, 15)
    assert site.serving() == 1, "a node was replaced in a pause"
    site.ask(site.nodes()[1], "/api/v1/scale/resume", "POST")
    wait_for("another process serves", lambda: site.serving() == 2 and site.nodes()[0]["pid"] != victim["pid"], 20)
    assert not site.status()["paused"]


def test_connections_are_spread_and_survive_changes(site: Site) -> None:
    """EL-04, EL-06, FT-36, FT-37: 1,000 connections survive a new worker; 400 over 4 nodes; a killed node gets none."""
    site.write(least=4, most=4, high=100_000, low=0)
    site.start()
    site.wait_serving(4, 20)
    idlers = Idlers(site.port)
    idlers.open(400)
    wait_for("100 each", lambda: sorted(spread(site).values()) == [100] * 4, 10)
    idlers.open(1_000, "more")
    site.end_controller()
    site.write(maxconn=40_000)
    site.start()
    wait_for("a controller runs", lambda: site.status()["running"], 10)
    wait_for("it has provided the balancer", lambda: site.status()["converged"], 10)
    assert idlers.answer() == 1_400
    idlers.open(20, "later")
    idlers.close()

    wait_for("nobody is there", lambda: sum(spread(site).values()) == 0, 10)
    site.call("scale", "pause", str(site.file))
    victim = site.nodes()[0]
    os.kill(victim["pid"], signal.SIGKILL)
    idlers.open(90)
    others = [node["name"] for node in site.nodes() if node["name"] != victim["name"]]
    wait_for("30 each", lambda: [spread(site)[name] for name in others] == [30] * 3, 10)
    idlers.close()


def test_a_port_that_another_balancer_has_is_refused(site: Site, binary: Path, tmp_path: Path) -> None:
    """EL-04: two sites with one port would share clients that belong to one of them."""
    site.call("scale", "run", str(site.file), "--once")
    (tmp_path / "other").mkdir()
    other = Site(binary, tmp_path / "other")
    other.port = site.port
    other.write()
    try:
        other.start()
        said = f"haproxy does not start at port {site.port}: "
        failures = lambda: [event["text"] for event in other.status()["events"] if event["kind"] == "failure"]  # noqa: E731
        wait_for("the second says why it has no balancer", lambda: other.nodes() and any(said in text for text in failures()), 20)
        assert "in use" in failures()[0] and "\n" not in failures()[0], failures()
    finally:
        other.close()


@pytest.mark.parametrize(("algorithm", "least"), [("roundrobin", 25), ("random", 8)])
def test_each_algorithm_spreads_as_it_should(site: Site, algorithm: str, least: int) -> None:
    """EL-06: 100 connections over 4 nodes."""
    site.write(least=4, most=4, high=100_000, low=0, algorithm=algorithm)
    site.start()
    site.wait_serving(4, 20)
    idlers = Idlers(site.port)
    idlers.open(100)
    wait_for("all are there", lambda: sum(spread(site).values()) == 100, 10)
    assert min(spread(site).values()) >= least, spread(site)
    idlers.close()


def test_it_follows_the_processor_time_of_brokers(site: Site) -> None:
    """EL-10, EL-15, EL-16, EL-18: brokers held to 0.1 processors; above 80 % one more, below 25 % one less."""
    if not has_control_groups():
        pytest.skip("no control groups that can be written")
    site.write(metric="cpu_util", period="4s", high=80, low=25, cooldown="8s", limits=", cpu: 0.1")
    site.start()
    site.wait_serving(1, 30)
    load = subprocess.Popen(
        [site.binary, "bench", "run", "pairs", "--publishers", "20", "--qos", "2", "--broker", f"{HOST}:{site.port}", "--duration", "60"],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )
    try:
        began = time.monotonic()
        wait_for("a second node serves", lambda: site.serving() >= 2, 30)
        took = time.monotonic() - began
        assert took < 20, f"{took:.1f} s after the load, with a period of 4 s"
        samples = site.nodes()[0]["samples"]
        assert samples["vcpus"] == 0.1 and samples["cpu_util"] > 25, samples
        decision = site.status()["decisions"][0]
        assert "mean cpu_util" in decision["reason"] and "> 80" in decision["reason"], decision
    finally:
        load.kill()
        load.wait()
    site.wait_serving(1, 60)
    assert all(step["to"] in (1, 2, 3) for step in site.status()["decisions"])
    times = [step["at_ms"] for step in site.status()["decisions"]]
    assert all(later - earlier >= 8_000 for earlier, later in zip(times, times[1:], strict=False)), times


def quota(node: dict[str, Any]) -> float:
    """Processors that the control group of a node allows."""
    groups = [line.split(":") for line in Path(f"/proc/{node['pid']}/cgroup").read_text().splitlines()]
    _, controllers, path = next(group for group in groups if group[0] == "0" or "cpu" in group[1].split(","))
    if not controllers:
        most, period = Path(f"/sys/fs/cgroup{path}/cpu.max").read_text().split()
        return int(most) / int(period)
    return int(Path(f"/sys/fs/cgroup/cpu{path}/cpu.cfs_quota_us").read_text()) / 100_000


def test_a_rule_changes_how_many_processors_a_node_may_use(site: Site) -> None:
    """EL-20: above 20 connections each node may use more processors, up to the policy's bound, while it serves; the next controller knows, and
    below 5 it has what the site file says again."""
    if not has_control_groups():
        pytest.skip("no control groups that can be written")
    site.write(most=1, high=20, low=5, cooldown="1s", limits=", cpu: 0.2")
    text = site.file.read_text()
    text = text.replace("adjust: +1", "resize: {cpu: +0.2, min: 0.2, max: 0.5}").replace("adjust: -1", "resize: {cpu: -0.2, min: 0.2, max: 0.5}")
    site.file.write_text(text)
    site.start()
    site.wait_serving(1, 15)
    before = site.nodes()[0]["pid"]
    assert quota(site.nodes()[0]) == 0.2
    idlers = Idlers(site.port)
    idlers.open(30)

    def has(cpu: float) -> bool:
        idlers.turn()
        found = site.status()["groups"]["brokers"]["cpu"]
        return bool(found == cpu and quota(site.nodes()[0]) == cpu)

    wait_for("it may use half a processor", lambda: has(0.5), 30)
    wait_for("the meter knows", lambda: site.nodes()[0]["samples"].get("vcpus") == 0.5, 10)
    assert [step["reason"].split(" for each")[0] for step in site.status()["decisions"]] == ["0.2 -> 0.4 processors", "0.4 -> 0.5 processors"]
    site.end_controller()
    site.start()
    site.wait_serving(1, 15)
    assert has(0.5), "the next controller gave the node another size"
    assert site.nodes()[0]["pid"] == before and idlers.returned == 0, "the node was started again"
    idlers.close()
    wait_for("it may use what the site file says", lambda: has(0.2), 30)


LONER = """\
#!/usr/bin/env python3
import json, os, signal, subprocess, sys, time, urllib.request
folder, binary = {folder!r}, {binary!r}
given = json.load(sys.stdin)
mark = os.path.join(folder, given.get("node", "resource") + ".json")
if sys.argv[1] == "create":
    if not os.path.exists(mark):
        ports = {ports}[given["node"]]
        command = [binary, "serve", "--port", str(ports[0]), "--http-port", str(ports[1]), "--cluster-port", str(ports[2]), "--bind", "127.0.0.1"]
        env = os.environ | {{"SEDGE_CLUSTER__KEY": given["cluster_key"], "SEDGE_CLUSTER__BIND": "127.0.0.1", "SEDGE_HTTP__ENABLED": "true", "SEDGE_HTTP__TOKEN": given["token"]}}
        process = subprocess.Popen(command, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
        json.dump([process.pid, ports], open(mark, "w"))
    pid, ports = json.load(open(mark))
    for _ in range(200):
        try:
            urllib.request.urlopen(f"http://127.0.0.1:{{ports[1]}}/health/ready", timeout=1)
            break
        except OSError:
            time.sleep(0.05)
    print(json.dumps(dict(zip(("mqtt", "http", "cluster"), (f"127.0.0.1:{{port}}" for port in ports)))))
elif sys.argv[1] in ("remove", "destroy") and os.path.exists(mark):
    os.kill(json.load(open(mark))[0], signal.SIGTERM)
    os.remove(mark)
"""


def test_a_node_that_has_not_met_the_others_gets_no_clients(site: Site, binary: Path) -> None:
    """EL-23: the program of the site starts nodes that know nobody. The second node is no member of the cluster, so nobody is moved there."""
    program = site.folder / "driver"
    ports = {f"brokers-{number}": free_base(1) for number in (1, 2)}
    program.write_text(LONER.format(folder=str(site.folder), binary=str(binary), ports=ports))
    program.chmod(0o700)
    site.write(high=20)
    site.file.write_text(site.file.read_text().replace("driver: process", f"driver: exec\nexec: {program}"))
    site.start()
    wait_for("the first node serves", lambda: site.serving() == 1, 20)
    idlers = Idlers(site.port)
    idlers.open(40)

    def said() -> bool:
        idlers.turn()
        return any("has not met the other nodes of brokers" in event["text"] for event in site.status()["events"])

    wait_for("the controller says why", said, 40)
    assert idlers.returned == 0, "clients were moved to a node that has none of their sessions"
    assert [node["state"] for node in site.nodes()] == ["serving", "starting"]
    idlers.close()


def test_a_returning_client_lands_where_its_session_is(site: Site) -> None:
    """EL-25: with placement by client id 200 clients that connect twice meet the same node; less than 5 % move."""
    site.write(least=4, most=4, high=100_000, low=0, algorithm="client-id")
    site.start()
    site.wait_serving(4, 20)
    taken_over = []
    for _ in range(2):
        idlers = Idlers(site.port)
        idlers.open(200)
        wait_for("all are there", lambda: sum(spread(site).values()) == 200, 10)
        taken_over.append(spread(site))
        idlers.close()
        wait_for("nobody is there", lambda: sum(spread(site).values()) == 0, 10)
    moved = sum((taken_over[0] - taken_over[1]).values())
    assert moved <= 10, taken_over
    assert min(taken_over[0].values()) >= 10, taken_over


def test_nothing_is_lost_while_it_grows_and_shrinks(site: Site) -> None:
    """EL-23: QoS 1 and 2, sessions that are kept, one address; cycles out and in."""
    site.write(cooldown="1s", high=30, low=18, most=2)
    site.start()
    site.wait_serving(1, 15)
    swarm = Swarm([(HOST, site.port)], random.Random(5), rate=30)
    idlers = Idlers(site.port)
    try:
        swarm.until("all subscribe", lambda: all(one.subscribed for one in swarm.subscribers), 20)
        swarm.until("all publishers are there", lambda: all(one.here for one in swarm.publishers), 20)
        swarm.loaded = True
        for _ in range(CYCLES):
            idlers.open(30)

            def grown() -> bool:
                idlers.turn()
                return site.serving() == 2 and not site.status()["pending"]

            swarm.until("it has grown", grown, 30)
            swarm.run(1.0)
            idlers.close()
            swarm.until("it has shrunk", lambda: len(site.nodes()) == 1 and site.serving() == 1, 40)
        swarm.settle(10)
    finally:
        swarm.close()
        idlers.close()
    verdict = judge(swarm)
    assert verdict.is_clean(), f"{verdict}\n{swarm.story()}"
    assert verdict.acknowledged > 100
