"""The stack file on a real Docker swarm: three managers and two workers, each an engine in a network namespace of its own.

`./test containers` makes the image and runs these; elsewhere they are skipped.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import pytest

from apart import can_make_namespaces
from chaos import judge
from cluster import wait_for
from engine import missing
from stack import ENCRYPTED, SERVICE, WORKERS, Machines, encrypts
from swarm import Swarm

WANTED = os.environ.get("SEDGE_CONTAINERS") == "1"
pytestmark = pytest.mark.skipif(not WANTED, reason="a run of its own: ./test containers")
Found = TypeVar("Found")
KEY = "0123456789abcdef0123456789abcdef"


def rules() -> list[str]:
    """The rules of this machine's own firewall, without their counters."""
    saved = subprocess.run(["iptables-save"], capture_output=True, text=True, check=True).stdout.splitlines()
    return [line.split(" [")[0] for line in saved if not line.startswith("#")]


@pytest.fixture(scope="module")
def machines(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machines]:
    """The stack, deployed; its nodes are one cluster."""
    why = missing()
    if why or not can_make_namespaces():
        pytest.skip(why or "cannot make network namespaces")
    before = rules()
    made = Machines(tmp_path_factory.mktemp("s"))
    try:
        key = made.folder / "key"
        key.write_text(KEY)
        made.manager.docker("secret", "create", "sedge_key", str(key))
        with pytest.raises(AssertionError, match="SEDGE_ANONYMOUS=always lets everybody in"):
            made.deploy()
        made.deploy(SEDGE_ANONYMOUS="always")
        made.wait_one_cluster()
        yield made
    finally:
        made.stop()
    wait_for("nothing is left", lambda: not made.left())
    assert rules() == before


@pytest.fixture
def swarm(machines: Machines) -> Iterator[Swarm]:
    """Clients at both workers that publish and subscribe."""
    made = Swarm(machines.clients(), random.Random(7), rate=20)
    try:
        made.until("all subscribe", lambda: all(one.subscribed for one in made.subscribers), 20)
        made.until("all publishers are there", lambda: all(one.here for one in made.publishers), 20)
        made.loaded = True
        made.run(2.0)
        yield made
    finally:
        made.close()


def beside(swarm: Swarm, what: str, ask: Callable[[], Found], seconds: float) -> Found:
    """Asks until the answer is something; clients go on while an engine takes its time."""
    deadline = time.monotonic() + seconds
    with ThreadPoolExecutor(1) as pool:
        while True:
            asked = pool.submit(ask)
            swarm.until(f"an answer: {what}", asked.done, 120)
            if found := asked.result():
                return found
            assert time.monotonic() < deadline, f"not within {seconds} s: {what}\n{swarm.story()}"
            swarm.run(0.3)


def follow_update(machines: Machines, swarm: Swarm, before: list[str]) -> list[str]:
    """Runs the load until each of these containers is replaced and the update is completed; returns their successors."""

    def replaced() -> list[str]:
        state = machines.update_state()
        assert state in ("", "updating", "completed"), f"{state}\n{machines.tasks()}\n{machines.logs()}"
        now = machines.one_cluster() if state == "completed" else []
        return now if not set(now) & set(before) else []

    after = beside(swarm, "each node is replaced", replaced, 240)
    swarm.note(f"updated: {[one[:12] for one in after]}")
    swarm.run(2.0)
    return after


def assert_nothing_lost(swarm: Swarm) -> None:
    """Ends the load; everything acknowledged has come, nothing with QoS 2 twice, in order, and no session is gone."""
    swarm.settle(15)
    verdict = judge(swarm)
    print(verdict, swarm.story(), sep="\n")
    assert verdict.published > 500 and verdict.is_clean(), f"{verdict}\n{swarm.story()}"


def test_clients_reach_the_cluster_at_every_worker(machines: Machines, swarm: Swarm) -> None:
    """OP-03, OP-04: one node at each worker, and a message that is published at either comes to subscribers at both."""
    assert sorted(status["name"] for status in machines.statuses()) == ["worker-1", "worker-2"]
    wait_for("clients are at both", lambda: all(status["connections"] for status in machines.statuses()))
    swarm.run(5.0)
    swarm.settle(15)
    verdict = judge(swarm)
    assert verdict.is_clean() and verdict.acknowledged > 100, f"{verdict}\n{swarm.story()}"


def test_a_rolling_update_under_load_loses_nothing(machines: Machines, swarm: Swarm) -> None:
    """OP-03, OP-05: `docker service update` replaces one node after the other while clients publish with QoS 1 and 2."""
    before = machines.healthy()
    machines.manager.docker("service", "update", "--detach", "--force", SERVICE)
    follow_update(machines, swarm, before)
    assert_nothing_lost(swarm)


def test_a_node_that_is_emptied_is_left_alone(machines: Machines, swarm: Swarm) -> None:
    """OP-03: a drained node lets nobody in, and the swarm does not end it for that; it serves on when asked to, and nothing is lost."""
    before = machines.healthy()
    engine, container = next(iter(machines.workers.values())), before[0]
    swarm.note("empty the first node")
    beside(swarm, "it is empty", lambda: engine.docker("exec", container, "/sedge", "drain", "--wait"), 60)
    # Longer than a health check that asked for readiness would take to fail for good: ten times every two seconds.
    swarm.run(30.0)
    assert [status["ready"] for status in machines.statuses()] == [False, True]
    assert machines.healthy() == before, machines.tasks()
    engine.docker("exec", container, "/sedge", "drain", "--cancel")
    beside(swarm, "it serves again", machines.one_cluster, 30)
    swarm.run(2.0)
    assert_nothing_lost(swarm)


def test_all_nodes_are_killed_at_once(machines: Machines, swarm: Swarm) -> None:
    """OP-03, FT-29: kill -9 of all nodes; their successors find each other at new addresses, and serve with the content of the journals."""
    before = machines.healthy()
    swarm.note("kill all nodes")
    for pid in machines.processes():
        os.kill(pid, signal.SIGKILL)

    def back() -> bool:
        now = machines.healthy()
        return bool(now) and not set(now) & set(before) and bool(machines.one_cluster())

    try:
        # The nodes need 10 to 15 seconds; when the swarm starts their tasks is its own affair.
        beside(swarm, "all nodes are back", back, 150)
    except AssertionError as error:
        raise AssertionError(f"{error}\n{machines.tasks()}\n{machines.logs()}") from error
    swarm.note("all are back")
    swarm.run(3.0)
    assert_nothing_lost(swarm)


def test_one_manager_of_three_stops(machines: Machines, swarm: Swarm) -> None:
    """OP-03, OP-05, OP-06: the leading manager is killed; nodes serve on, another manager answers, and the stack can be updated; nothing is lost."""
    before = machines.healthy()
    leader = machines.leader()
    swarm.note(f"kill {machines.name(leader)}, the leader")
    machines.kill(leader)
    beside(swarm, "another manager leads", lambda: machines.leader() >= 0, 60)
    swarm.note(f"{machines.name(machines.leader())} leads")
    listed = machines.manager.docker("service", "ls", "--format", "{{.Name}} {{.Mode}} {{.Replicas}}")
    assert listed.split() == [SERVICE, "global", f"{WORKERS}/{WORKERS}"], listed
    swarm.run(3.0)
    assert machines.healthy() == before, machines.tasks()
    for engine in machines.workers.values():
        engine.docker("tag", "sedge:latest", "sedge:next")
    machines.deploy(SEDGE_IMAGE="sedge:next")
    for engine, container in zip(machines.workers.values(), follow_update(machines, swarm, before), strict=True):
        assert engine.docker("inspect", "--format", "{{.Config.Image}}", container).strip() == "sedge:next"
    assert_nothing_lost(swarm)


def test_the_network_is_encrypted_if_asked_for(machines: Machines) -> None:
    """OP-03, OP-04: with the second file the engines encrypt the traffic between workers, and the nodes are one cluster over it."""
    machines.remove()
    machines.deploy(ENCRYPTED)
    network = json.loads(machines.manager.docker("network", "inspect", "sedge_cluster"))[0]
    assert network["Driver"] == "overlay" and network["Attachable"] and "encrypted" in network["Options"], network
    if not encrypts(machines.space(0)):
        pytest.skip("this kernel has no ESP: an encrypted overlay passes nothing")
    machines.wait_one_cluster()


def test_the_stack_is_removed_and_leaves_nothing(machines: Machines) -> None:
    """OP-03: `docker stack rm` ends all containers; after the engines' end no process, mount, namespace or device is left."""
    machines.remove()
    machines.stop()
    # A namespace's devices go some time after it.
    wait_for("nothing is left", lambda: not machines.left())
