"""Mosquitto as a bridge to Sedge, with its default settings."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from cluster import HOST, Cluster, free_base, wait_for

STATE = "$SYS/broker/connection/near.cloud/state"


@contextmanager
def mosquitto(directory: Path, port: int, far: int, more: str) -> Iterator[None]:
    """A Mosquitto broker with a bridge to the port `far`."""
    program = shutil.which("mosquitto", path="/usr/sbin:/usr/bin")
    assert program, "mosquitto is missing; ./test installs it"
    (directory / "mosquitto.conf").write_text(
        f"listener {port} {HOST}\nallow_anonymous true\n"
        f"connection cloud\naddress {HOST}:{far}\nremote_clientid near.cloud\n"
        f"topic up/# out 1\ntopic down/# in 1\ntopic both/# both 1\n{more}"
    )
    with (directory / "mosquitto.log").open("w") as log:
        broker = subprocess.Popen([program, "-v", "-c", str(directory / "mosquitto.conf")], stdout=log, stderr=log)
    try:
        yield
    finally:
        broker.terminate()
        broker.wait(10)


def retained(tools: dict[str, str], port: int, topic: str) -> str:
    """The retained value of a topic, as a client is told it."""
    command = [tools["mosquitto_sub"], "-h", HOST, "-p", str(port), "-t", topic, "--retained-only", "-C", "1", "-W", "1"]
    return subprocess.run(command, capture_output=True, timeout=20, check=False, text=True).stdout.strip()


def publish(tools: dict[str, str], port: int, topic: str, text: str) -> None:
    """A retained publication."""
    command = [tools["mosquitto_pub"], "-h", HOST, "-p", str(port), "-t", topic, "-m", text, "-q", "1", "-r"]
    subprocess.run(command, capture_output=True, timeout=20, check=True)


@pytest.mark.parametrize("more", ["", "bridge_protocol_version mqttv50\n"], ids=["mqtt-3.1.1", "mqtt-5.0"])
def test_the_bridge_of_mosquitto_connects_with_its_defaults(
    cluster: Cluster, tools: dict[str, str], tmp_path: Path, more: str
) -> None:
    """MQ-08: the bridge's will is below $SYS; a message that goes both ways goes round no more than once, and retained stays retained."""
    far, (near, _, _) = cluster.port, free_base(1)
    name = "v5" if more else "v4"
    with mosquitto(tmp_path, near, far, more):
        wait_for("the bridge says that it is there", lambda: retained(tools, far, STATE) == "1", 20)
        for topic, source, target in (("up", near, far), ("down", far, near), ("both", near, far), ("both", far, near)):
            publish(tools, source, f"{topic}/{name}", f"{topic} from {source}")
            wait_for(
                f"{topic} from {source}",
                lambda topic=topic, source=source, target=target: retained(tools, target, f"{topic}/{name}") == f"{topic} from {source}",
            )
        topic = f"both/round-{name}"
        publish(tools, near, topic, "begin")
        wait_for("begin", lambda: retained(tools, far, topic) == "begin")
        read = ["stdbuf", "-oL", tools["mosquitto_sub"], "-h", HOST, "-p", str(near), "-t", topic, "-q", "1", "-W", "20"]
        with subprocess.Popen(read, stdout=subprocess.PIPE, text=True) as reader:
            assert reader.stdout
            seen = [reader.stdout.readline().strip()]
            publish(tools, near, topic, "from near")
            wait_for("from near", lambda: retained(tools, far, topic) == "from near")
            publish(tools, far, topic, "end")
            while seen[-1] not in ("end", ""):
                seen.append(reader.stdout.readline().strip())
            reader.terminate()
        assert seen == ["begin", "from near", "end"], "nothing comes back to where it began"
    wait_for("the will of the bridge", lambda: retained(tools, far, STATE) == "0", 20)
