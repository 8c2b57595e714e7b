"""Traces for a collector of OpenTelemetry; takes a build with the feature `otlp` (./test otlp)."""

from __future__ import annotations

import subprocess
import threading
import urllib.request
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from client import Client
from cluster import HOST, free_base, get, wait_for
from durable import Node
from mqttwire import V5

TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"


class Collector:
    """A collector of spans, which are read with the types that OpenTelemetry publishes."""

    def __init__(self, port: int) -> None:
        from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

        spans: list[Any] = []
        keys: list[str | None] = []
        statuses: list[int] = []
        self.spans, self.keys, self.statuses = spans, keys, statuses

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:  # noqa: N802
                body = self.rfile.read(int(self.headers["Content-Length"]))
                assert self.path == "/v1/traces" and self.headers["Content-Type"] == "application/x-protobuf"
                keys.append(self.headers["X-Key"])
                if statuses:
                    self.send_response(statuses.pop(0))
                    self.send_header("Content-Length", "0")
                    self.end_headers()
                    return
                for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
                    about = {one.key: one.value.string_value for one in resource.resource.attributes}
                    for scope in resource.scope_spans:
                        spans.extend((about, span) for span in scope.spans)
                self.send_response(200)
                self.send_header("Content-Type", "application/x-protobuf")
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        self.server = ThreadingHTTPServer((HOST, port), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def named(self, name: str) -> list[tuple[dict[str, str], Any]]:
        """The spans of this name."""
        return [(about, span) for about, span in self.spans if span.name == name]

    def close(self) -> None:
        """Ends it."""
        self.server.shutdown()
        self.server.server_close()


def attributes(span: Any) -> dict[str, Any]:
    """Attributes of a span."""
    return {one.key: one.value.string_value or one.value.int_value for one in span.attributes}


@pytest.fixture(autouse=True)
def feature(binary: Path, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    """Tests of the build that they are for only."""
    done = configured(binary, tmp_path)
    has = done.returncode == 0
    if has == ("build_without" in request.node.name):
        pytest.skip(f"this build has {'' if has else 'no '}OpenTelemetry")
    if has:
        pytest.importorskip("opentelemetry.proto")


def configured(binary: Path, tmp_path: Path) -> subprocess.CompletedProcess[str]:
    """Whether a file with an endpoint is taken."""
    file = tmp_path / "otlp.toml"
    file.write_text('[otlp]\nendpoint = "http://127.0.0.1:4318"\n')
    return subprocess.run([str(binary), "config", "check", "-c", str(file)], capture_output=True, text=True, timeout=20, check=False)


def test_a_build_without_otlp_says_how_to_get_it(binary: Path, tmp_path: Path) -> None:
    """OP-07: key, feature and what to do."""
    done = configured(binary, tmp_path)
    assert done.returncode != 0 and "otlp.endpoint" in done.stdout + done.stderr and "--features otlp" in done.stdout + done.stderr, done


def site(make_site: Callable[..., list[Node]], tmp_path: Path, port: int) -> list[Node]:
    """Three nodes that export everything below plant/."""
    keys = tmp_path / "headers"
    keys.write_text("X-Key: geheim\n")
    nodes = make_site(f'[otlp]\nendpoint = "http://{HOST}:{port}"\ntopics = ["plant/#"]\none_in = 1\nheader_file = "{keys}"\n', 3)
    for node in nodes:
        wait_for("it follows publications", lambda node=node: get(f"http://{HOST}:{node.http}/api/v1/traces")["traces"], 10)
    return nodes


def client(node: Node, name: str) -> Client:
    """A connected client."""
    made = Client(HOST, node.port, V5, timeout=10)
    made.connect(name, props={"session_expiry_interval": 3_600})
    return made


def test_spans_of_several_nodes_are_one_trace_of_the_publisher(make_site: Callable[..., list[Node]], tmp_path: Path) -> None:
    """OP-07: W3C Trace Context goes on; publish, forward and deliver are a tree; other topics are left alone; spans wait for a collector that is away."""
    port = free_base(1)[0]
    here, there, _ = site(make_site, tmp_path, port)
    listener, talker = client(there, "listener"), client(here, "talker")
    listener.subscribe(("plant/#", 1), ("other", 1))
    talker.publish("plant/1", "first", qos=1, props={"user_property": [("traceparent", f"00-{TRACE}-{SPAN}-01")]})
    talker.publish("plant/2", "second", qos=1)
    talker.publish("other", "third", qos=1)
    for text in ("first", "second", "third"):
        listener.message(text, qos=1)
    collector = Collector(port)
    try:
        wait_for("all spans come", lambda: len(collector.spans) >= 6, 60)
        assert {span.name for _, span in collector.spans} == {f"{verb} plant/{number}" for verb in ("publish", "forward", "deliver") for number in (1, 2)}
        tree = [[collector.named(f"{verb} plant/{number}")[0] for verb in ("publish", "forward", "deliver")] for number in (1, 2)]
        for (_, publish), (_, forward), (_, deliver) in tree:
            assert forward.parent_span_id == publish.span_id and deliver.parent_span_id == forward.span_id
            assert publish.trace_id == forward.trace_id == deliver.trace_id and len(publish.trace_id) == 16
            assert publish.start_time_unix_nano <= publish.end_time_unix_nano and deliver.start_time_unix_nano <= deliver.end_time_unix_nano
            assert attributes(publish)["messaging.client.id"] == "talker" and attributes(deliver)["messaging.client.id"] == "listener"
            assert [event.name for event in deliver.events] == ["session", "sent", "acknowledged"], deliver
        (about, first), (_, second) = tree[0][0], tree[1][0]
        assert (first.trace_id.hex(), first.parent_span_id.hex()) == (TRACE, SPAN) and second.parent_span_id == b"" and second.trace_id.hex() != TRACE
        assert about["service.name"] == "sedge" and tree[0][1][0]["service.instance.id"] != about["service.instance.id"]
        assert set(collector.keys) == {"geheim"}
        metrics = get_text(here)
        assert "sedge_otlp_spans_exported_total 2\n" in metrics and "sedge_otlp_dropped_total 0\n" in metrics
    finally:
        collector.close()


def get_text(node: Node) -> str:
    """The page of metrics."""
    with urllib.request.urlopen(f"http://{HOST}:{node.http}/metrics", timeout=10) as answer:
        return str(answer.read().decode())


def test_spans_that_the_collector_refuses_do_not_hold_up_later_ones(make_site: Callable[..., list[Node]], tmp_path: Path) -> None:
    """OP-07, OTLP "Failures": a batch is dropped and counted after 400, and sent again after 503."""
    port = free_base(1)[0]
    collector = Collector(port)
    try:
        here, *_ = site(make_site, tmp_path, port)
        talker = client(here, "talker")
        collector.statuses.append(400)
        talker.publish("plant/refused", "x", qos=1)
        wait_for("a batch is refused", lambda: "sedge_otlp_dropped_total 1\n" in get_text(here), 20)
        collector.statuses.append(503)
        talker.publish("plant/again", "x", qos=1)
        wait_for("the next batch comes", lambda: collector.named("publish plant/again"), 20)
        assert not collector.statuses and not collector.named("publish plant/refused")
    finally:
        collector.close()


def test_what_is_gathered_is_sent_before_the_node_ends(make_site: Callable[..., list[Node]], tmp_path: Path) -> None:
    """OP-07: also what is not quiet for two seconds."""
    port = free_base(1)[0]
    collector = Collector(port)
    try:
        here, *_ = site(make_site, tmp_path, port)
        talker = client(here, "talker")
        talker.publish("plant/last", "bye", qos=1)
        wait_for("it is gathered", lambda: "sedge_otlp_waiting 0\n" not in get_text(here), 10)
        here.stop()
        wait_for("the span comes", lambda: collector.named("publish plant/last"), 10)
    finally:
        collector.close()
