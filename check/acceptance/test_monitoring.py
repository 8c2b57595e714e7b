"""Alert rules and dashboards against a real Prometheus that scrapes a real cluster."""

from __future__ import annotations

import importlib.util
import json
import re
import shutil
import signal
import subprocess
import threading
import urllib.parse
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.error import URLError
from typing import Any

import pytest

from client import Client
from cluster import HOST, Cluster, free_base, get, wait_for
from mqttwire import V5
from scaling import Idlers

DEPLOY = Path(__file__).parents[2] / "deploy"
pytestmark = pytest.mark.skipif(not shutil.which("prometheus") or not shutil.which("promtool"), reason="prometheus is not installed")


@pytest.fixture(scope="module")
def prometheus(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Prometheus with the rules, scraping the cluster and a node exporter each second."""
    yield from run_prometheus(cluster, tmp_path_factory)


@pytest.fixture(scope="module")
def native(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The same with native histograms."""
    yield from run_prometheus(cluster, tmp_path_factory, "--enable-feature=native-histograms")


def run_prometheus(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory, *flags: str) -> Iterator[str]:
    """A Prometheus with these flags, and where it answers."""
    folder = tmp_path_factory.mktemp("prometheus")
    port, exporter_port, _ = free_base(1)
    text = (DEPLOY / "prometheus/prometheus.yml").read_text()
    nodes = ", ".join(f'"{HOST}:{port}"' for port in http_ports(cluster))
    text = re.sub(r'\["node-1:8080".*?\]', f"[{nodes}]", text).replace("node-exporter:9100", f"{HOST}:{exporter_port}")
    text = text.replace("interval: 5s", "interval: 1s")
    assert f'"{HOST}:' in text
    (folder / "prometheus.yml").write_text(text)
    shutil.copy(DEPLOY / "prometheus/rules.yml", folder)
    log = (folder / "log").open("wb")
    started = [subprocess.Popen(
        ["prometheus", f"--config.file={folder}/prometheus.yml", f"--storage.tsdb.path={folder}/data", f"--web.listen-address={HOST}:{port}", *flags],
        stdout=log, stderr=log)]
    exporter = shutil.which("prometheus-node-exporter")
    if exporter:
        started.append(subprocess.Popen([exporter, f"--web.listen-address={HOST}:{exporter_port}"], stdout=log, stderr=log))

    def ready() -> bool:
        try:
            return "Ready" in str(get(f"http://{HOST}:{port}/-/ready"))
        except (URLError, ValueError):
            return False

    wait_for("prometheus is ready", ready, 20)
    yield f"http://{HOST}:{port}"
    for process in started:
        process.send_signal(signal.SIGTERM)
        process.wait(20)


def http_ports(cluster: Cluster) -> list[int]:
    """Ports of the nodes' HTTP API."""
    return [cluster.http + number for number in range(3)]


def query(prometheus: str, expression: str) -> list[dict[str, Any]]:
    """The present result of an expression."""
    found = get(f"{prometheus}/api/v1/query?query={urllib.parse.quote(expression)}")
    return list(found["data"]["result"])


def test_rules_are_right() -> None:
    """Each alert fires when it should, with what it says, and not before."""
    done = subprocess.run(["promtool", "test", "rules", "rules_test.yml"], cwd=DEPLOY / "prometheus", capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    subprocess.run(["promtool", "check", "rules", "rules.yml"], cwd=DEPLOY / "prometheus", check=True, capture_output=True)
    alerts = re.findall(r"alert: (\w+)", (DEPLOY / "prometheus/rules.yml").read_text())
    explained = (Path(__file__).parents[2] / "docs/operations.md").read_text()
    assert [alert for alert in alerts if f"`{alert}`" not in explained] == [], "docs/operations.md does not explain them"


def test_the_dashboard_is_what_its_script_makes() -> None:
    """Nobody has edited the one without the other."""
    spec = importlib.util.spec_from_file_location("make", DEPLOY / "grafana/make.py")
    assert spec and spec.loader
    make = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(make)
    assert json.loads((DEPLOY / "grafana/sedge.json").read_text()) == make.dashboard()


def test_every_expression_has_an_answer(cluster: Cluster, prometheus: str) -> None:
    """OP-08: no panel of the dashboard is empty, and no alert fires in a healthy cluster."""
    idlers = Idlers(cluster.port)
    idlers.open(3)
    dashboard = json.loads((DEPLOY / "grafana/sedge.json").read_text())
    expressions = [target["expr"] for panel in dashboard["panels"] for target in panel.get("targets", [])]
    assert len(expressions) >= 30
    for wanted, name in [("$__rate_interval", "4s"), ("$instance", ".*")]:
        expressions = [expression.replace(wanted, name) for expression in expressions]
    if not shutil.which("prometheus-node-exporter"):
        expressions = [expression for expression in expressions if "node_" not in expression.replace("sedge_node_", "")]
    # A node without a journal has nothing to show in its row.
    if not query(prometheus, "sedge_journal_bytes"):
        expressions = [expression for expression in expressions if "sedge_journal" not in expression]
    empty = list(expressions)
    talk = Talk(cluster)

    def answered() -> bool:
        empty[:] = [expression for expression in empty if not query(prometheus, expression)]
        return not empty

    wait_for("all have an answer", answered, 30)
    rules = get(f"{prometheus}/api/v1/alerts")
    assert rules["data"]["alerts"] == []
    # OP-01: quantiles are numbers where messages flow, here and over a link, and none is above a second.
    quantiles = [expression for expression in expressions if "histogram_quantile" in expression]
    assert len(quantiles) >= 5

    def answers() -> list[float]:
        return [float(series["value"][1]) for expression in quantiles for series in query(prometheus, expression)]

    wait_for("each node has measured", lambda: len(answers()) >= 7 and sum(0 < value <= 1 for value in answers()) >= 6, 30)
    talk.end()
    idlers.close()


def test_native_and_classic_histograms_say_the_same(cluster: Cluster, prometheus: str, native: str) -> None:
    """OP-01: one Prometheus is given protobuf and stores native histograms, the other text; their quantiles lie in the same classic bucket."""
    talk = Talk(cluster)
    bounds = [0.0, *(digit * 10.0 ** power for power in range(-4, 1) for digit in (1, 2.5, 5)), 10.0, 60.0]
    instance = f"{HOST}:{http_ports(cluster)[0]}"
    for name in ("sedge_delivery_latency_seconds{from=\"client\",", "sedge_publish_acknowledgement_seconds{"):
        metric, _, labels = name.partition("{")
        labels = f"{labels}instance=\"{instance}\""

        def quantiles(metric: str = metric, labels: str = labels) -> tuple[float, float] | None:
            fine = query(native, f"histogram_quantile(0.5, rate({metric}{{{labels}}}[20s]))")
            coarse = query(prometheus, f"histogram_quantile(0.5, sum by (le) (rate({metric}_bucket{{{labels}}}[20s])))")
            values = [float(found[0]["value"][1]) for found in (fine, coarse) if found]
            return (values[0], values[1]) if len(values) == 2 and all(0 < value <= 60 for value in values) else None

        def agree(quantiles: Callable[[], tuple[float, float] | None] = quantiles) -> bool:
            found = quantiles()
            if not found:
                return False
            fine, coarse = found
            place = next(number for number, bound in enumerate(bounds) if coarse <= bound * 1.0001)
            # A bound of the classic bucket lies within a native one, which is 9 percent wide.
            return bounds[place - 1] * 0.9 <= fine <= bounds[place] * 1.1

        wait_for(f"{metric}: both agree", agree, 60)
    talk.end()
    count = query(native, "count({__name__=~\"sedge_.*\"})")
    assert query(native, "sedge_delivery_latency_seconds_bucket") == [], "this Prometheus stores native histograms only"
    text = query(prometheus, "count({__name__=~\"sedge_.*\", __name__!~\".*_(bucket|sum|count)\"})")
    assert abs(float(count[0]["value"][1]) - float(text[0]["value"][1])) <= 3 * 4, "no other metric is missing in protobuf"


class Talk:
    """A publisher at the first node, and a subscriber there and at the second."""

    def __init__(self, cluster: Cluster) -> None:
        self.subscribers = [Client(HOST, cluster.ports()[node], V5, timeout=10) for node in range(2)]
        for number, subscriber in enumerate(self.subscribers):
            subscriber.connect(f"listener-{number}")
            subscriber.subscribe("talk/#", qos=1)
        self.publisher = Client(HOST, cluster.ports()[0], V5, timeout=10)
        self.publisher.connect("speaker")
        self.ended = threading.Event()
        self.thread = threading.Thread(target=self.run)
        self.thread.start()

    def run(self) -> None:
        """Publishes ten times a second; each subscriber acknowledges."""
        while not self.ended.wait(0.1):
            self.publisher.publish("talk/x", "hello", qos=1)
            for subscriber in self.subscribers:
                subscriber.message("hello")

    def end(self) -> None:
        """No more of it."""
        self.ended.set()
        self.thread.join(20)
        for client in (*self.subscribers, self.publisher):
            client.disconnect()


def test_an_alert_fires_when_a_node_dies(cluster: Cluster, prometheus: str) -> None:
    """A node is killed, and Prometheus says which one."""
    cluster.kill(2)
    victim = f"{HOST}:{http_ports(cluster)[2]}"

    def told() -> bool:
        alerts = get(f"{prometheus}/api/v1/alerts")["data"]["alerts"]
        return any(alert["labels"]["alertname"] == "SedgeNodeDown" and alert["labels"]["instance"] == victim
                   and alert["state"] == "firing" for alert in alerts)

    wait_for("the alert fires", told, 40)
