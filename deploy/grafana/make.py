#!/usr/bin/env python3
"""Writes deploy/grafana/sedge.json, the Grafana dashboard of a cluster. Import it in Grafana and choose the Prometheus data source."""

from __future__ import annotations

import json
from pathlib import Path

NODE = '{job="sedge", instance=~"$instance"}'
RATE = "[$__rate_interval]"
# Row: title, then panels as (title, unit, [(expression, legend)]).
ROWS: list[tuple[str, list[tuple[str, str, list[tuple[str, str]]]]]] = [
    ("Cluster", [
        ("Nodes that answer", "none", [('sum(up{job="sedge"})', "nodes"), (f"min(sedge_members{NODE})", "fewest members seen by a node")]),
        ("Clients", "none", [(f"sum(sedge_connections{NODE})", "connections"), (f"sum(sedge_sessions{NODE})", "sessions")]),
        ("Messages", "cps", [(f"sum(rate(sedge_publishes_received_total{NODE}{RATE}))", "received"),
                             (f"sum(rate(sedge_publishes_sent_total{NODE}{RATE}))", "sent")]),
        ("Copies that are missing", "none", [(f"sedge_copies_wanted{NODE} - sedge_copies{NODE}", "{{instance}}")]),
    ]),
    ("Load of each node", [
        ("Processor time of the broker", "percentunit", [(f"rate(process_cpu_seconds_total{NODE}{RATE})", "{{instance}}")]),
        ("Memory of the broker", "bytes", [(f"process_resident_memory_bytes{NODE}", "{{instance}}")]),
        ("Connections", "none", [(f"sedge_connections{NODE}", "{{instance}}")]),
        ("Messages received", "cps", [(f"sum by (instance, qos) (rate(sedge_publishes_received_total{NODE}{RATE}))", "{{instance}} QoS {{qos}}")]),
        ("Messages sent", "cps", [(f"sum by (instance, qos) (rate(sedge_publishes_sent_total{NODE}{RATE}))", "{{instance}} QoS {{qos}}")]),
        ("Bytes from and to clients", "Bps", [(f"rate(sedge_received_bytes_total{NODE}{RATE})", "{{instance}} in"),
                                              (f"rate(sedge_sent_bytes_total{NODE}{RATE})", "{{instance}} out")]),
    ]),
    ("What waits and what is lost", [
        ("Messages that wait for sessions", "none", [(f"sedge_queued_messages{NODE}", "{{instance}}")]),
        ("Bytes held for clients, share of the limit", "percentunit",
         [(f"sedge_buffered_bytes{NODE} / sedge_buffered_bytes_limit{NODE}", "{{instance}}")]),
        ("Dropped messages", "cps", [(f"sum by (instance, cause) (rate(sedge_dropped_messages_total{NODE}{RATE}))", "{{instance}} {{cause}}")]),
        ("Repeated to clients", "cps", [(f"rate(sedge_redeliveries_total{NODE}{RATE})", "{{instance}}")]),
        ("Refused", "cps", [(f"rate(sedge_authentications_refused_total{NODE}{RATE})", "{{instance}} logins"),
                            (f"rate(sedge_refused_publications_total{NODE}{RATE})", "{{instance}} publications"),
                            (f"rate(sedge_refused_subscriptions_total{NODE}{RATE})", "{{instance}} subscriptions")]),
        ("Connections opened and closed", "cps", [(f"rate(sedge_connections_opened_total{NODE}{RATE})", "{{instance}} opened"),
                                                  (f"rate(sedge_connections_closed_total{NODE}{RATE})", "{{instance}} closed")]),
    ]),
    ("How long it takes", [
        ("Delivery: read from the publisher to written to the subscriber", "s",
         [(f"histogram_quantile({part}, sum by (le) (rate(sedge_delivery_latency_seconds_bucket{NODE}{RATE})))", f"{percent} %")
          for part, percent in ((0.5, 50), (0.99, 99))]),
        ("Acknowledgement of QoS 1 and 2 publications", "s",
         [(f"histogram_quantile({part}, sum by (le) (rate(sedge_publish_acknowledgement_seconds_bucket{NODE}{RATE})))", f"{percent} %")
          for part, percent in ((0.5, 50), (0.99, 99))]),
        ("Delivery of each node, 99 %", "s",
         [(f"histogram_quantile(0.99, sum by (instance, from, le) (rate(sedge_delivery_latency_seconds_bucket{NODE}{RATE})))", "{{instance}} from {{from}}")]),
        ("Age of the oldest message that waits for a connected client", "s", [(f"sedge_queue_age_seconds{NODE}", "{{instance}}")]),
        ("Longest turn of an event loop", "s", [(f"sedge_loop_lag_seconds{NODE}", "{{instance}}")]),
    ]),
    ("Between nodes", [
        ("Round trip of links", "µs", [(f"sedge_link_rtt_microseconds{NODE}", "{{instance}} to {{peer}}")]),
        ("Publications over links", "cps", [(f"rate(sedge_link_publications_sent_total{NODE}{RATE})", "{{instance}} to {{peer}}")]),
        ("Bytes over links", "Bps", [(f"rate(sedge_link_sent_bytes_total{NODE}{RATE})", "{{instance}} to {{peer}}")]),
        ("Not acknowledged by neighbours", "none", [(f"sedge_unacknowledged{NODE}", "{{instance}}")]),
        ("Sessions on the move", "none", [(f"sedge_sessions_moving{NODE}", "{{instance}}")]),
        ("Takeovers", "cps", [(f"rate(sedge_takeovers_total{NODE}{RATE})", "{{instance}} clients that moved"),
                              (f"rate(sedge_node_takeovers_total{NODE}{RATE})", "{{instance}} nodes that died")]),
    ]),
    ("Journal", [
        ("Size", "bytes", [(f"sedge_journal_bytes{NODE}", "{{instance}}")]),
        ("Written", "Bps", [(f"rate(sedge_journal_written_bytes_total{NODE}{RATE})", "{{instance}}")]),
        ("Time of a commit", "µs", [(f"rate(sedge_journal_commit_microseconds_total{NODE}{RATE}) / (rate(sedge_journal_commits_total{NODE}{RATE}) > 0)"
                                     f" or sedge_journal_commit_microseconds_max{NODE} * 0", "{{instance}}")]),
        ("Refused for want of room", "cps", [(f"rate(sedge_journal_refused_total{NODE}{RATE})", "{{instance}}")]),
    ]),
    ("Machines (node exporter)", [
        ("Processor time", "percentunit", [('1 - avg by (instance) (rate(node_cpu_seconds_total{mode="idle"}[$__rate_interval]))', "{{instance}}")]),
        ("Memory in use", "bytes", [("node_memory_MemTotal_bytes - node_memory_MemAvailable_bytes", "{{instance}}")]),
    ]),
]
SOURCE = {"type": "prometheus", "uid": "${source}"}


def panel(number: int, title: str, unit: str, targets: list[tuple[str, str]], x: int, y: int) -> dict[str, object]:
    """One graph."""
    return {
        "id": number, "type": "timeseries", "title": title, "datasource": SOURCE, "gridPos": {"x": x, "y": y, "w": 8, "h": 7},
        "fieldConfig": {"defaults": {"unit": unit, "min": 0, "custom": {"fillOpacity": 8}}, "overrides": []},
        "options": {"legend": {"displayMode": "list", "placement": "bottom"}, "tooltip": {"mode": "multi"}},
        "targets": [{"refId": chr(65 + place), "expr": expr, "legendFormat": legend, "datasource": SOURCE}
                    for place, (expr, legend) in enumerate(targets)],
    }


def dashboard() -> dict[str, object]:
    """The whole dashboard."""
    panels: list[dict[str, object]] = []
    y = 0
    for title, row in ROWS:
        panels.append({"id": len(panels) + 1, "type": "row", "title": title, "gridPos": {"x": 0, "y": y, "w": 24, "h": 1}, "panels": []})
        y += 1
        for place, (name, unit, targets) in enumerate(row):
            panels.append(panel(len(panels) + 1, name, unit, targets, place % 3 * 8, y + place // 3 * 7))
        y += (len(row) + 2) // 3 * 7
    variables = [
        {"name": "source", "type": "datasource", "query": "prometheus", "label": "Data source"},
        {"name": "instance", "type": "query", "label": "Node", "datasource": SOURCE, "multi": True, "includeAll": True, "allValue": ".*",
         "query": {"query": 'label_values(up{job="sedge"}, instance)', "refId": "instance"}, "refresh": 2},
    ]
    return {
        "uid": "sedge", "title": "Sedge", "tags": ["mqtt"], "timezone": "browser", "schemaVersion": 39, "refresh": "10s",
        "time": {"from": "now-1h", "to": "now"}, "templating": {"list": variables}, "panels": panels,
    }


if __name__ == "__main__":
    Path(__file__).with_name("sedge.json").write_text(json.dumps(dashboard(), indent=1, ensure_ascii=False) + "\n")
