"""The binary under test and clusters made of it."""

from __future__ import annotations

import contextlib
import os
import shutil
import tomllib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from apart import can_make_namespaces
from broker import Sidecar
from cluster import HOST, UPSTREAM, Cluster, next_makes, wait_for
from durable import Node, knows_all
from own_network import own_network


# Files whose bounds of time, processor time or memory mean nothing beside other tests.
ALONE = {"balancer", "floods", "limits", "plugs", "relief", "replay", "scale", "sniff", "starved", "thesis_load", "weights"}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Marks the tests of those files, and those that brokers of other makes do not pass."""
    listed = tomllib.loads((Path(__file__).parent / "behind.toml").read_text())["test"]
    behind = {one["name"]: one["why"] for one in listed if UPSTREAM and {"all", *UPSTREAM} & set(one["makes"])}
    for item in items:
        if why := behind.get(getattr(item, "originalname", item.name)):
            item.add_marker(pytest.mark.skip(reason=why))
        if item.path.stem.removeprefix("test_") in ALONE:
            item.add_marker("alone")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Where the binary is."""
    default = Path(__file__).parents[2] / "target/release/sedge"
    parser.addoption("--binary", type=Path, default=default, help="the sedge binary (default: target/release/sedge)")


def pytest_configure(config: pytest.Config) -> None:
    """Nodes of this run form clusters of a name of their own: nodes that another run has left behind cannot join them."""
    os.environ.setdefault("SEDGE_CLUSTER__NAME", f"tests-{os.getpid()}")


@pytest.fixture(scope="session")
def binary(request: pytest.FixtureRequest) -> Path:
    """The binary under test."""
    path: Path = request.config.getoption("--binary")
    assert path.exists(), f"{path} is missing: cargo build --release --bin sedge"
    return path.resolve()


@pytest.fixture(scope="module")
def quiet_network() -> Iterator[None]:
    """Runs the tests of a file where no other test makes interfaces.

    Chromium drops its connections (ERR_NETWORK_CHANGED) when an interface comes or goes.
    """
    with own_network() if can_make_namespaces() else contextlib.nullcontext():
        yield


@pytest.fixture(scope="module")
def cluster(binary: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Three nodes, shared by the tests of one file that break nothing."""
    running = Cluster(binary, tmp_path_factory.mktemp("cluster") / "data")
    yield running
    running.stop()


@pytest.fixture
def make_cluster(binary: Path, tmp_path: Path) -> Iterator[Callable[..., Cluster]]:
    """Clusters of a test's own, for tests that break things."""
    made: list[Cluster] = []

    def make(nodes: int = 3, *options: str) -> Cluster:
        made.append(Cluster(binary, tmp_path / f"data{len(made)}", nodes, *options))
        return made[-1]

    yield make
    for running in made:
        running.stop()


@pytest.fixture
def make_node(binary: Path, tmp_path: Path) -> Iterator[Callable[..., Node]]:
    """Nodes of a test's own."""
    made: list[Node] = []

    def make(durability: str, data: Path | None = None, seeds: Sequence[str] = (), **settings: object) -> Node:
        made.append(Node(binary, data or tmp_path / f"node{len(made)}", durability, **settings))
        made[-1].seeds = list(seeds)
        made[-1].start()
        return made[-1]

    yield make
    for node in made:
        node.stop()


@pytest.fixture
def nodes(binary: Path, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[list[Node]]:
    """Three nodes that know each other; each before a broker of its own where `SEDGE_UPSTREAM_MAKES` asks for that."""
    made: list[Node] = [Node(binary, tmp_path / f"node{number}", request.param) for number in range(3)]
    if UPSTREAM:
        makes = enumerate(next_makes(len(made)))
        made = [Sidecar(binary, tmp_path / f"node{number}", durability=request.param, make=make) for number, make in makes]
    brokers = [node.broker for node in made if isinstance(node, Sidecar)]
    for node in made:
        node.seeds = [f"{HOST}:{other.cluster}" for other in made if other is not node]
    try:
        for broker in brokers:
            broker.start()
        for node in made:
            node.start()
        wait_for("they know each other", lambda: all(knows_all(node) for node in made), 30)
        yield made
    finally:
        for node in made:
            node.stop()
        for broker in brokers:
            broker.stop()


@pytest.fixture(scope="session")
def tools() -> dict[str, str]:
    """Paths of the programs that tests call."""
    found = {}
    for name in ("mosquitto_pub", "mosquitto_sub", "node"):
        path = shutil.which(name, path=f"{os.environ['PATH']}:/usr/sbin:/usr/bin")
        assert path, f"{name} is missing; ./test installs it"
        found[name] = path
    return found


@pytest.fixture
def make_site(binary: Path, tmp_path: Path) -> Iterator[Callable[..., list[Node]]]:
    """Nodes that know each other, with these sections in the configuration of each."""
    made: list[Node] = []

    def make(sections: str, count: int = 1, durability: str = "journal") -> list[Node]:
        nodes = [Node(binary, tmp_path / f"site{number}", durability) for number in range(count)]
        made.extend(nodes)
        for node in nodes:
            node.seeds = [f"{HOST}:{other.cluster}" for other in nodes if other is not node]
            node.extra = sections
        for node in nodes:
            node.start()
        if count > 1:
            wait_for("they know each other", lambda: all(knows_all(node) for node in nodes), 30)
        return nodes

    yield make
    for node in made:
        node.stop()
