"""Options, markers, the `net` fixture, and the machinery that overlaps tests which must wait for real seconds."""

from __future__ import annotations

import itertools
import time
import tomllib
import uuid
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import mqttwire as w
from client import Client, ClientError
from mqttwire import V5, T

HERE = Path(__file__).parent


def pytest_addoption(parser: pytest.Parser) -> None:
    """Where the broker under test is."""
    group = parser.getgroup("conformance")
    group.addoption("--host", default="127.0.0.1", help="address of the broker")
    group.addoption("--port", help="MQTT port of the broker")
    group.addoption("--ports", help="ports of the nodes of a cluster, e.g. 1883,1884,1885")
    group.addoption("--ws-port", help="port for MQTT over WebSocket, path /mqtt")
    group.addoption("--guarded-port", help="MQTT port of a broker with the accounts and rules of guarded.py")
    group.addoption("--known", help="TOML file of known deviations")
    group.addoption("--wait", type=float, default=5.0, help="seconds to wait for what must come (default 5)")


def pytest_configure(config: pytest.Config) -> None:
    """Markers."""
    config.addinivalue_line("markers", "mqtt(*ids, version): normative statements of the standard that the test checks")
    config.addinivalue_line("markers", "timed: needs real seconds; runs in a thread beside the other tests")
    config.addinivalue_line("markers", "expects_reason: the broker says why it closes, which 5.0 only recommends")


_PORTS = itertools.count()


class Net:
    """The broker (or cluster) as one test sees it: unique names, clients on the ports in turn, and tidying up."""

    def __init__(self, config: pytest.Config, ports: str | None = None) -> None:
        ports = ports or config.getoption("--ports") or config.getoption("--port")
        if not ports:
            pytest.skip("no broker: give --port or --ports, or use ./run")
        self.host = config.getoption("--host")
        self.ports = [int(port) for port in str(ports).split(",")]
        self.wait = config.getoption("--wait")
        self.name = uuid.uuid4().hex[:10]
        self._count = itertools.count(1)
        self._clients: list[Client] = []
        self._retained: set[str] = set()
        self._sessions: set[str] = set()

    def topic(self, rest: str = "t") -> str:
        """A topic of this test only."""
        return f"ct/{self.name}/{rest}"

    def new_id(self) -> str:
        """A client id of this test only: letters and digits, at most 23."""
        return f"c{self.name}x{next(self._count)}"

    def raw(self, version: int = V5, *, port: int | None = None) -> Client:
        """A network connection without CONNECT, on the next port."""
        chosen = port or self.ports[next(_PORTS) % len(self.ports)]
        return self.adopt(Client(self.host, chosen, version, self.wait))

    def adopt(self, client: Client) -> Client:
        """Takes care of closing this client and of removing its retained messages."""
        client.on_publish = lambda topic, retain: self._retained.add(topic) if retain else None
        self._clients.append(client)
        return client

    def client(self, version: int = V5, client_id: str | None = None, **options: Any) -> Client:
        """A connected client."""
        client = self.raw(version, port=options.pop("port", None))
        name = self.new_id() if client_id is None else client_id
        props = options.get("props") or {}
        if name and (not options.get("clean", True) or props.get("session_expiry_interval")):
            self._sessions.add(name)
        will = options.get("will")
        if will and will.retain:
            self._retained.add(will.topic)
        client.connect(name, **options)
        return client

    def session(
        self, version: int, client_id: str, *, clean: bool = False, expiry: int = 300, **options: Any
    ) -> Client:
        """A client whose session outlives the connection, in either version's way."""
        if version == V5:
            options["props"] = {"session_expiry_interval": expiry, **(options.get("props") or {})}
        self._sessions.add(client_id)
        return self.client(version, client_id, clean=clean, **options)

    def quiet(self, subscriber: Client, publisher: Client) -> None:
        """No message that `publisher` has sent so far reaches `subscriber`.

        A fence instead of a pause: later messages of the same publisher, one of each QoS, must be the next to arrive.
        """
        marker = self.topic(f"marker/{next(self._count)}")
        subscriber.subscribe(marker, qos=2)
        for qos in (0, 1, 2):
            publisher.publish(marker, b"marker", qos=qos)
        for _ in range(3):
            got = subscriber.message()
            assert got.topic == marker, f"unexpected PUBLISH {got}"
        subscriber.nothing()

    def retain(self, topic: str, payload: bytes | str, qos: int = 1, version: int = V5, **options: Any) -> None:
        """Stores a retained message and waits until every port serves it."""
        self.client(version).publish(topic, payload, qos=qos, retain=True, **options)
        self.settle(topic, payload.encode() if isinstance(payload, str) else payload)

    def settle(self, topic: str, payload: bytes | None) -> None:
        """Waits until a new subscriber at every port gets this retained message (None: none)."""
        for port in self.ports:
            self._poll_retained(port, topic, payload)

    def _poll_retained(self, port: int, topic: str, payload: bytes | None) -> None:
        deadline = time.monotonic() + self.wait
        while time.monotonic() < deadline:
            probe = self.client(V5, port=port)
            probe.subscribe(topic)
            probe.ping()
            seen = [got.payload for got in probe.inbox if got.type == T.PUBLISH]
            probe.disconnect()
            if seen == ([] if payload is None else [payload]):
                return
            time.sleep(0.01)  # pause between two looks, bounded by the deadline
        raise ClientError(f"port {port} does not serve the retained message of {topic}")

    def tidy(self) -> None:
        """Closes every connection and removes retained messages and sessions, so that nothing piles up."""
        for client in self._clients:
            client.close()
        try:
            for name in self._sessions:
                self._end(Client(self.host, self.ports[0], V5, self.wait), name)
            if self._retained:
                sweeper = Client(self.host, self.ports[0], V5, self.wait)
                sweeper.connect(self.new_id())
                for topic in sorted(self._retained):
                    sweeper.send(w.publish(V5, topic, b"", retain=True))
                sweeper.disconnect()
        except (OSError, AssertionError):
            pass  # a broker that is gone shows in the next test, not here

    @staticmethod
    def _end(client: Client, name: str) -> None:
        client.try_connect(name, clean=True)
        client.disconnect()


@pytest.fixture
def net(request: pytest.FixtureRequest) -> Any:
    """The broker under test."""
    if request.node.get_closest_marker("timed"):
        yield None  # the test already runs in its own thread with its own Net
        return
    own = Net(request.config)
    yield own
    own.tidy()


@pytest.fixture
def guarded(request: pytest.FixtureRequest) -> Any:
    """A broker with accounts and rules, beside the one under test."""
    port = request.config.getoption("--guarded-port")
    if not port:
        pytest.skip("needs a broker with the accounts and rules of guarded.py: --guarded-port")
    own = Net(request.config, port)
    yield own
    own.tidy()


# --- tests that wait for real seconds run beside the others ----------------------------------------------------------

_FUTURE: pytest.StashKey[Any] = pytest.StashKey()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Known deviations become xfail; timed tests are asked for their result last."""
    known = config.getoption("--known")
    if known:
        _mark_known(items, tomllib.loads(Path(known).read_text()))
    items.sort(key=lambda item: item.get_closest_marker("timed") is not None)


def _mark_known(items: list[pytest.Item], table: dict[str, Any]) -> None:
    """An entry with `sometimes = true` may pass, too."""
    entries = {name: entry for entry in table["known"] for name in entry["tests"]}
    for item in items:
        if entry := entries.get(item.nodeid):
            item.add_marker(pytest.mark.xfail(reason=entry["reason"], strict=not entry.get("sometimes", False)))


def _run_timed(item: pytest.Function) -> None:
    own = Net(item.config)
    params = getattr(getattr(item, "callspec", None), "params", {})
    try:
        item.obj(own, **params)
    finally:
        own.tidy()


def pytest_runtestloop(session: pytest.Session) -> None:
    """Starts all timed tests at once, so that together they take as long as the slowest."""
    tests = [item for item in session.items if isinstance(item, pytest.Function)]
    timed = [item for item in tests if item.get_closest_marker("timed")]
    ready = session.config.getoption("--ports") or session.config.getoption("--port")
    if session.config.option.collectonly or not ready or not timed:
        return
    pool = ThreadPoolExecutor(max_workers=len(timed))
    for item in timed:
        item.stash[_FUTURE] = pool.submit(_run_timed, item)
    pool.shutdown(wait=False)


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """A timed test hands over the result of its thread."""
    if not pyfuncitem.get_closest_marker("timed"):
        return None
    future = pyfuncitem.stash.get(_FUTURE, None)
    if future is None:
        pytest.skip("no broker: give --port or --ports, or use ./run")
    future.result(timeout=90)
    return True
