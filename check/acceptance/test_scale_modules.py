"""`sedge scale run --module`: metering, alarming and orchestrator as processes of their own, with an MQTT broker between them."""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cluster import HOST, free_base, wait_for
from remote import Remote
from scaling import Idlers, Site, has_haproxy

pytestmark = pytest.mark.skipif(not has_haproxy(), reason="haproxy is not installed")
MODULES = ("metering", "alarming", "orchestrator")
ORDERS = list(itertools.permutations(MODULES)) if os.environ.get("SEDGE_SCALE_ORDERS") else [MODULES, MODULES[::-1]]


class Modules:
    """The processes of the modules of one site."""

    def __init__(self, site: Site, messages: int) -> None:
        self.site, self.url = site, f"mqtt://{HOST}:{messages}"
        self.running: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, name: str) -> None:
        """Starts the process of one module."""
        log = (self.site.folder / f"{name}.log").open("ab")
        command = [self.site.binary, "scale", "run", self.site.file, "--module", name, "--messages", self.url]
        self.running[name] = subprocess.Popen(command, env=self.site.env, stdout=log, stderr=log)

    def end(self, name: str, how: signal.Signals = signal.SIGTERM) -> None:
        """Ends it."""
        process = self.running.pop(name)
        process.send_signal(how)
        process.wait(20)

    def places(self) -> dict[str, Any]:
        """Where the orchestrator believes the modules to be."""
        if not self.site.nodes():
            return {}
        found: dict[str, Any] = self.site.status()["modules"]
        return found


@pytest.fixture
def messages(tmp_path: Path) -> Iterator[Remote]:
    """The messaging server: a Mosquitto."""
    made = Remote(tmp_path, free_base(1)[0])
    yield made
    made.stop()


@pytest.fixture
def modules(binary: Path, tmp_path: Path, messages: Remote) -> Iterator[Modules]:
    """A site of which no module runs yet."""
    site = Site(binary, tmp_path)
    site.write(most=2)
    made = Modules(site, messages.port)
    yield made
    for name in list(made.running):
        made.end(name)
    site.close()


@pytest.mark.parametrize("order", ORDERS, ids="-".join)
def test_modules_start_in_any_order(modules: Modules, messages: Remote, order: tuple[str, ...]) -> None:
    """EL-21, EL-22: in each order of start, and with the messaging server last, the site grows with its load."""
    for name in order:
        modules.start(name)
    site = modules.site
    wait_for("the first node serves, which needs no other module", lambda: site.serving() == 1, 15)
    assert modules.places() == {"metering": "missing", "alarming": "missing", "orchestrator": "here"}
    messages.start()
    wait_for("the modules find each other", lambda: set(modules.places().values()) == {"here", "elsewhere"}, 15)
    idlers = Idlers(site.port)
    idlers.open(60)
    wait_for("a second node serves", lambda: site.serving() == 2, 30)
    decision = site.status()["decisions"][-1]
    assert (decision["from"], decision["to"]) == (1, 2) and "alarm high" in decision["reason"], decision
    idlers.close()


def test_a_module_that_is_killed_is_missed_and_taken_back(modules: Modules, messages: Remote) -> None:
    """EL-21, EL-22: while alarming is dead, nothing is decided by the states that it said last; it begins again and the site follows the load."""
    messages.start()
    for name in MODULES:
        modules.start(name)
    site = modules.site
    wait_for("the modules find each other", lambda: set(modules.places().values()) == {"here", "elsewhere"}, 20)
    wait_for("alarms are evaluated elsewhere", lambda: site.status()["alarms"]["low"]["state"] == "alarm", 20)
    modules.end("alarming", signal.SIGKILL)
    wait_for("it is missed", lambda: modules.places()["alarming"] == "missing", 20)
    assert {alarm["state"] for alarm in site.status()["alarms"].values()} == {"insufficient data"}
    idlers = Idlers(site.port)
    idlers.open(60)
    modules.start("alarming")
    wait_for("a second node serves", lambda: site.serving() == 2, 30)
    idlers.close()


def test_modules_need_a_messaging_server(modules: Modules) -> None:
    """EL-21: the command line names the flag that is missing or wrong."""
    site = modules.site
    file = str(site.file)
    assert "--messages" in site.call("scale", "run", file, "--module", "metering", code=2)
    said = site.call("scale", "run", file, "--module", "metering", "--messages", "broker:1883", code=2)
    assert "write mqtt://" in said, said
    said = site.call("scale", "run", file, "--once", "--module", "metering", "--messages", modules.url, code=2)
    assert "--once is for the orchestrator" in said, said
