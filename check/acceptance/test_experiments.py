"""The experiments of `sedge bench` start clusters of the real binary (small: this proves that the tools work, nothing else)."""

from __future__ import annotations

import json
import os
import random
import socket
import subprocess
from pathlib import Path
from typing import Any

import pytest

from apart import can_make_namespaces
from cluster import HOST, Cluster, is_free, wait_for


def free_port(nodes: int) -> int:
    """A first port with which the ports of all nodes are free: they also have those 100, 200 and 300 above."""
    for _ in range(300):
        base = random.SystemRandom().randrange(11_000, 31_000, 10)
        if all(is_free(base + above + node) for above in (0, 100, 200, 300) for node in range(nodes)):
            return base
    raise RuntimeError("no free ports")


def processes_of(session: int) -> list[str]:
    """The processes of a session that have not ended: number, name and state."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            name, _, rest = stat.read_text().rpartition(")")
        except OSError:
            continue
        state, _, _, of = rest.split()[:4]
        if int(of) == session and state != "Z":
            found.append(f"{name}) {state}")
    return found


def experiment(binary: Path, words: str, nodes: int, *more: str, overlay: str = "mesh") -> Any:
    """The report of an experiment, as JSON; its first broker had this overlay, and nothing that it started is left."""
    command = [str(binary), "bench", *words.split(), "--nodes", str(nodes), "--port", str(free_port(nodes)), *more]
    with subprocess.Popen(
        [*command, "--json", "--quiet"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        try:
            out, errors = process.communicate(timeout=120)
        finally:
            process.kill()
    assert process.returncode == 0, errors
    # Ports say nothing: another test may have taken them since. Brokers of other makes may take a moment to end.
    wait_for("all that the experiment has started has ended", lambda: not processes_of(process.pid), 20)
    report = json.loads(out)
    for broker in (report.get("head") or report["patterns"][0]["head"])["brokers"]:
        assert (broker["version"], broker["overlay"]) == (version(binary), overlay)
    return report


def version(binary: Path) -> str:
    """The version that the binary prints."""
    return subprocess.run([str(binary), "--version"], capture_output=True, text=True, check=True).stdout.split()[1]


def test_a_pattern_starts_its_brokers_and_searches_their_limit(binary: Path) -> None:
    """BM-08: one command per pattern."""
    # Nobody has a turn within so short a run at so long an interval: the search is over after its first step.
    report = experiment(binary, "pattern b --duration 0.2 --warmup 0.1 --drain 0.5 --start-ms 3000000 --repeat 1", 5)
    [pattern] = report["patterns"]
    assert len(pattern["head"]["brokers"]) == 5
    assert len(pattern["limit"]["trials"]) == 1, pattern


def listens(port: int) -> bool:
    """Whether somebody listens there. The port of a broker that has ended is not free at once: its connections wait for stray packets."""
    with socket.socket() as probe:
        return probe.connect_ex((HOST, port)) == 0


def test_a_pattern_starts_brokers_of_another_make_behind_its_nodes(binary: Path) -> None:
    """BM-08, FT-02: `--upstream`: each node stands before a Mosquitto that the experiment has started and ends."""
    report = experiment(binary, "pattern b --upstream mosquitto --duration 0.2 --warmup 0.1 --drain 0.5 --start-ms 3000000 --repeat 1", 5)
    [pattern] = report["patterns"]
    assert len(pattern["head"]["brokers"]) == 5 and len(pattern["limit"]["trials"]) == 1, pattern
    behind = [int(broker["address"].rpartition(":")[2]) + 300 for broker in pattern["head"]["brokers"]]
    wait_for("the brokers have ended", lambda: not any(listens(port) for port in behind), 20)
    done = subprocess.run([str(binary), "bench", "pattern", "a", "--upstream", "mosquito"], capture_output=True, text=True, timeout=30, check=False)
    assert done.returncode != 0 and '"mosquito"' in done.stderr, done


def test_the_load_of_a_pattern_crosses_the_cluster_whole(binary: Path, cluster: Cluster) -> None:
    """BM-08: ten publishers and ten subscribers of each topic, and nothing is lost well below the limit."""
    brokers = ",".join(f"{HOST}:{port}" for port in cluster.ports())
    done = subprocess.run(
        [str(binary), "bench", "run", "pattern-c", "--broker", brokers, "--interval", "100", "--warmup", "0.2",
         "--duration", "1", "--json"], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    figures = json.loads(done.stdout)
    assert (figures["sp_ratio"], figures["sent"], figures["expected"]) == (10, 500, 5000)
    assert (figures["lost"], figures["duplicates"], figures["reordered"]) == (0, 0, 0), figures


def test_a_sweep_goes_over_a_cluster_of_its_own(binary: Path) -> None:
    """BM-11: table and degradation."""
    words = "sweep --pairs 2,4 --repeat 1 --duration 0.5 --warmup 0.2 --placement apart"
    report = experiment(binary, words, 2)
    assert [size["pairs"] for size in report["sizes"]] == [2, 4]
    for size in report["sizes"]:
        [both] = size["rounds"]
        for loop in ("open", "closed"):
            assert (both[loop]["lost"], both[loop]["duplicates"], both[loop]["reordered"]) == (0, 0, 0), both[loop]
        assert both["open"]["sent"] == 50 * size["pairs"]
        assert size["per_client_per_s"]["mean"] > 0 and size["broker_rss_mib"]["mean"] > 0
    assert set(report["degradation"]) == {"per_client_percent", "latency_percent"}


def test_a_grid_counts_what_goes_over_the_links(binary: Path) -> None:
    """BM-16, BM-17: interest at the publishers' node costs the links nothing, interest elsewhere one copy per message."""
    words = ("grid --topics 1 --payload 1000 --locality 100,0 --publishers 2 --subscribers 2 --messages 5 --interval 20 "
             "--quiet-s 0.2")
    local, remote = experiment(binary, words, 2)["cells"]
    for cell in (local, remote):
        [run] = cell["runs"]
        assert (run["figures"]["sent"], run["figures"]["expected"], run["figures"]["lost"]) == (10, 20, 0)
    assert local["runs"][0]["traffic"]["publications"] == 0
    assert remote["runs"][0]["traffic"]["publications"] == 10
    assert remote["runs"][0]["traffic"]["bytes"] > 10 * 1000


@pytest.mark.parametrize("how", ["kill", "stop"])
def test_convergence_and_repair_are_timed(binary: Path, how: str) -> None:
    """BM-18, TR-23 to TR-25: from the nodes' own status; a node that is killed, and one that is frozen."""
    report = experiment(binary, f"converge --runs 1 --how {how}", 3)
    [series] = report["series"]
    [run] = series["runs"]
    assert (len(run["convergence"]), len(run["repair"]), run["routed"]) == (3, 2, True)
    assert run["lost"] not in {node["node"] for node in run["repair"]}
    assert series["convergence"]["seconds"]["mean"] == run["convergence_s"] > 0
    assert series["repair"]["seconds"]["mean"] == run["repair_s"] > 0


def test_trees_are_repaired_and_clients_of_the_others_lose_nothing(binary: Path) -> None:
    """TR-22 to TR-26: the root of all trees is killed under load with QoS 1; the others have trees without it, and every message comes
    once."""
    report = experiment(binary, "converge --runs 1 --victim root --load --overlay tree,topic-tree", 3, overlay="tree")
    assert [series["overlay"] for series in report["series"]] == ["tree", "topic-tree"]
    for series, roots in zip(report["series"], (1, 2), strict=True):
        [run] = series["runs"]
        assert run["rooted"] == roots and run["routed"], run
        service = run["service"]
        assert (service["lost"], service["duplicates"]) == (0, 0) and service["expected"] > 500, service


@pytest.mark.skipif(not (can_make_namespaces() and os.path.exists("/dev/net/tun")),
                    reason="SKIP: needs root, the right to make network namespaces, and /dev/net/tun")
def test_an_experiment_runs_over_an_emulated_network(binary: Path) -> None:
    """BM-16: every message to the other node takes the delay of the link, and the link has counted it."""
    words = ("grid --topics 1 --payload 1000 --locality 0 --publishers 2 --subscribers 1 --messages 5 --interval 20 "
             "--quiet-s 0.2 --emulate --link-rate 10mbit --link-delay 10")
    report = experiment(binary, words, 2)
    [run] = report["cells"][0]["runs"]
    assert (run["figures"]["expected"], run["figures"]["lost"]) == (10, 0)
    assert run["figures"]["latency_us"]["min"] >= 10_000
    [there] = [link for link in run["links"] if (link["from"], link["to"]) == (1, 2)]
    assert there["bytes"] > 10 * 1000
    assert "emulated 10mbit" in report["head"]["network"]


@pytest.mark.skipif(not (can_make_namespaces() and os.path.exists("/dev/net/tun")),
                    reason="SKIP: needs root, the right to make network namespaces, and /dev/net/tun")
def test_a_grid_tells_publications_from_signalling_over_several_overlays(binary: Path) -> None:
    """TR-14, TR-19, TR-28, TR-29, FW-13: flooding reaches nodes that nobody wants it at, a topic's tree never, from the first message on; what the
    network counted are the publications that the nodes say they sent; nothing is left unread unless links are encrypted."""
    words = ("grid --topics 1 --payload 1000 --locality 0 --publishers 2 --subscribers 1 --messages 10 --interval 50 --qos 1 "
             "--quiet-s 0.2 --emulate --link-delay 5 --overlay flood,tree,topic-tree:balance")
    report = experiment(binary, words, 3, overlay="flood")
    assert [cell["overlay"] for cell in report["cells"]] == ["flood", "tree", "topic-tree:balance"]
    for cell in report["cells"]:
        [run] = cell["runs"]
        told = run["told"]
        assert (run["figures"]["expected"], run["figures"]["lost"]) == (20, 0)
        assert told["publications"]["count"] == run["traffic"]["publications"]
        assert told["publications"]["bytes"] > told["publications"]["count"] * 1000
        assert told["unread_bytes"] == 0 < told["signalling_bytes"]
        assert cell["overlay"] == "flood" or told["mechanisms"]["$sedge/overlay"] > 0, told
    strangers, crossed = ({cell["overlay"]: told(cell) for cell in report["cells"]} for told in (
        lambda cell: cell["runs"][0]["told"]["to_strangers"]["count"],
        lambda cell: cell["runs"][0]["told"]["publications"]["count"]))
    assert (strangers["flood"], strangers["topic-tree:balance"]) == (20, 0), report
    assert crossed["topic-tree:balance"] <= crossed["tree"], crossed
    encrypted = experiment(binary, words.replace(",tree,topic-tree:balance", " --encrypt"), 3, overlay="flood")
    [run] = encrypted["cells"][0]["runs"]
    assert run["told"]["publications"]["count"] == 0 and run["told"]["unread_bytes"] > 40 * 1000


def test_a_run_starts_nodes_and_brokers_whose_processes_it_knows_by_name(binary: Path) -> None:
    """BM-08, FT-02: a node and the broker behind it are killed by name while clients go elsewhere; what each process used, and what crossed links."""
    words = ("fail --upstream mosquitto --publishers 4 --subscribers 4 --interval 20 --warmup 0.3 --duration 2 --drain 10 "
             "--fault 0.5:kill:node-2 --fault 0.5:kill:broker-2")
    report = site(binary, words, 3)
    assert (report["lost"], report["duplicates"]) == (0, 0) and report["expected"] > 300, report
    assert [fault["what"] for fault in report["faults"]] == ["kill node-2", "kill broker-2"]
    assert not any("kill" in warning for warning in report["warnings"]), report["warnings"]
    measured = {one["name"]: one["phases"] for one in report["processes"]}
    assert set(measured) == {f"{what}-{number}" for what in ("node", "broker") for number in (1, 2, 3)}
    lived = {name for name, phases in measured.items() if any(phase["name"] == "drain" for phase in phases)}
    assert lived == {"node-1", "broker-1", "node-3", "broker-3"}
    assert all(phases[-1]["rss_kib"] > 0 for phases in measured.values())
    assert {node["behind"] for node in report["site"]["nodes"]} == {"mosquitto"}
    command = [str(binary), "bench", "fail", "--nodes", "2", "--port", str(free_port(2)), "--fault", "1:kill:broker-1"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode != 0 and "there is no broker-1" in done.stderr and "node-2" in done.stderr, done


def site(binary: Path, words: str, nodes: int) -> Any:
    """The report of a run over brokers of its own."""
    command = [str(binary), "bench", *words.split(), "--nodes", str(nodes), "--port", str(free_port(nodes)), "--json", "--quiet"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_brokers_in_a_row_hand_on_what_is_wanted_beyond(binary: Path) -> None:
    """IL-23: `--recipe sedge-row`: with all publishers of a topic at one node and one subscriber at each, a publication takes each link once, and
    no other."""
    report = site(binary, "run pattern-b --recipe sedge-row --upstream mosquitto --qos 1 --interval 500 --warmup 0 --messages 4 --drain 10", 3)
    assert (report["lost"], report["duplicates"]) == (0, 0) and report["expected"] == 2_000, report
    links = {(link["from"], link["to"]): link["publications"] for link in report["site"]["links"]}
    assert set(links) == {(f"node-{one}", f"node-{other}") for one, other in ((1, 2), (2, 1), (2, 3), (3, 2))}, links
    # Ten publishers of each of five topics are in turn at nodes 1, 2, 3, 1 and 2. The probe is at node 1.
    assert (links["node-3", "node-2"], links["node-2", "node-1"]) == (5 * 2 * 4, 5 * 6 * 4), links
    assert (links["node-1", "node-2"], links["node-2", "node-3"]) == (5 * 4 * 4 + 4, 5 * 8 * 4 + 4), links


def test_the_tool_for_the_experiments_before_mosquitto_writes_its_tables(binary: Path, tmp_path: Path) -> None:
    """BM-11: `check/experiments/run --write` puts its results between its marks, and nothing else."""
    page = tmp_path / "page.md"
    page.write_text("before\n<!-- check/experiments s-f begins -->\nold\n<!-- check/experiments s-f ends -->\nafter\n")
    tool = Path(__file__).resolve().parents[1] / "experiments/run"
    command = [str(tool), "--binary", str(binary), "--only", "s-f", "--small", "--write", "--page", str(page)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    text = page.read_text()
    assert text.startswith("before\n<!-- check/experiments s-f begins -->\n### S-f") and text.endswith("ends -->\nafter\n"), text
    lines = [line.split(" | ") for line in text.splitlines() if line.startswith("| QoS 2, node and broker")]
    assert len(lines) == 2 and all(int(line[1].replace(",", "")) > 300 and line[2] == "0" for line in lines), text
    assert "old" not in text
