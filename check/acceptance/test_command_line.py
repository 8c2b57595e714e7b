"""Descriptions of `sedge` for shells, manual pages and operators, and the flags of `pub` and `sub` that Mosquitto's clients have."""

from __future__ import annotations

import json
import shutil
import socket
import struct
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import pki
from cluster import HOST, Cluster, free_base, metric, wait_for
from durable import Node

# Flags of mosquitto_pub and mosquitto_sub 2.0.11 (Debian 12) that Sedge has not, as docs/command-line.md says.
LEFT_OUT = {"-S", "--ciphers", "--psk", "--psk-identity", "--tls-engine", "--tls-engine-kpass-sha1"}


def run(binary: Path, *arguments: str, **options: object) -> subprocess.CompletedProcess[str]:
    """Runs a command to its end."""
    return subprocess.run([str(binary), *arguments], capture_output=True, text=True, timeout=30, check=False, **options)  # type: ignore[call-overload,no-any-return]


def flags_of(help_text: str) -> set[str]:
    """All words of a help text that are flags."""
    words = help_text.replace(",", " ").replace("=", " ").replace("[", " ").replace("|", " ").split()
    return {word.strip("()'.:;") for word in words if word.startswith("-") and word.strip("-'.,")}


@pytest.fixture
def node_with(binary: Path, tmp_path: Path) -> Iterator[Callable[[str], Node]]:
    """A node with more sections in its configuration."""
    made: list[Node] = []

    def make(sections: str) -> Node:
        made.append(Node(binary, tmp_path / "node", "memory"))
        made[-1].extra = sections
        made[-1].start()
        return made[-1]

    yield make
    for node in made:
        node.stop()


@pytest.mark.parametrize("command", ["pub", "sub"])
def test_each_flag_of_mosquittos_clients_is_there_or_named_in_the_documentation(binary: Path, tools: dict[str, str], command: str) -> None:
    """Compares with the help of the Mosquitto client that is installed here, so that nothing is left out silently."""
    theirs = subprocess.run([tools[f"mosquitto_{command}"], "--help"], capture_output=True, text=True, timeout=10, check=False).stdout
    listed = {line.split()[0] for line in theirs.splitlines() if line.startswith(" -")}
    ours = flags_of(run(binary, command, "--help").stdout) | {"--nodelay", "--keyform"}
    missing = {flag for flag in listed if flag not in ours}
    assert len(listed) > 30 and missing <= LEFT_OUT, missing - LEFT_OUT
    manual = (Path(__file__).parents[2] / "docs/command-line.md").read_text()
    assert all(f"`{flag}`" in manual for flag in LEFT_OUT)
    for flag in ("--nodelay", "--keyform=pem"):
        assert "unexpected argument" not in run(binary, command, flag, "-h", f"{HOST}:1", "-t", "a", *(["-m", "x"] if command == "pub" else [])).stderr


def test_another_node_is_taken_when_the_first_is_gone(make_cluster: Callable[..., Cluster], binary: Path) -> None:
    """`-h A -h B`: pub and sub begin at the first that answers, and sub goes on at the other when its node is killed."""
    cluster = make_cluster(2)
    addresses = [word for node in (1, 0) for word in ("-h", f"{HOST}:{cluster.port + node}")]
    command = [str(binary), "sub", *addresses, "-i", "walker", "-V", "5", "-q", "1", "-t", "a", "-x", "600", "-W", "60"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as listener:
        assert listener.stdout and listener.stderr

        def is_heard() -> bool:
            return metric(cluster.http + 1, "sedge_subscription_bytes") > 0

        wait_for("the subscriber is at the second node", is_heard, 20)
        assert run(binary, "pub", *addresses, "-q", "1", "-t", "a", "-m", "before").returncode == 0
        assert listener.stdout.readline() == "before\n"
        cluster.kill(1)
        done = run(binary, "pub", *addresses, "-q", "1", "-t", "a", "-m", "after")
        assert done.returncode == 0, done.stderr
        # The acknowledgement of the first one may have died with its node: QoS 1 may bring it again.
        while (line := listener.stdout.readline()) == "before\n":
            pass
        assert line == "after\n"
        listener.terminate()
        assert listener.wait(30) == 0
        assert "trying again" in listener.stderr.read()


def test_unix_sockets_and_own_addresses_reach_a_node(binary: Path, tmp_path: Path, node_with: Callable[[str], Node]) -> None:
    """`--unix` and `-A`."""
    path = tmp_path / "mqtt.socket"
    node = node_with(f'[listener.local]\nprotocol = "tcp"\nsocket = "{path}"\n')
    assert run(binary, "pub", "--unix", str(path), "-q", "1", "-r", "-t", "a", "-m", "x").returncode == 0
    heard = run(binary, "sub", "-A", "127.0.0.9", "-h", HOST, "-p", str(node.port), "-t", "a", "-C", "1", "-W", "10")
    assert heard.stdout == "x\n"
    assert "127.0.0.9:" in node.log.read_text()


def socks(listener: socket.socket, asked: list[bytes]) -> None:
    """A SOCKS5 proxy for one connection, which wants an account."""
    inside, _ = listener.accept()
    with inside:
        assert inside.recv(4) == b"\x05\x02\x00\x02"
        inside.sendall(b"\x05\x02")
        asked.append(inside.recv(100))
        inside.sendall(b"\x01\x00")
        head = inside.recv(5)
        name = inside.recv(head[4])
        (port,) = struct.unpack(">H", inside.recv(2))
        with socket.create_connection((name.decode(), port)) as outside:
            inside.sendall(b"\x05\x00\x00\x01\x7f\x00\x00\x01\x00\x00")
            back = threading.Thread(target=pass_on, args=(outside, inside), daemon=True)
            back.start()
            pass_on(inside, outside)
            back.join(10)


def pass_on(source: socket.socket, sink: socket.socket) -> None:
    """Copies until the end."""
    while chunk := source.recv(4096):
        sink.sendall(chunk)
    sink.shutdown(socket.SHUT_WR)


def test_a_proxy_stands_between(cluster: Cluster, binary: Path) -> None:
    """`--proxy`, with an account."""
    asked: list[bytes] = []
    with socket.create_server((HOST, 0)) as listener:
        proxy = threading.Thread(target=socks, args=(listener, asked))
        proxy.start()
        url = f"socks5h://me:word@{HOST}:{listener.getsockname()[1]}"
        done = run(binary, "pub", "--proxy", url, "-h", HOST, "-p", str(cluster.port), "-q", "1", "-t", "a", "-m", "x")
        proxy.join(10)
    assert (done.returncode, done.stderr) == (0, "")
    assert asked == [b"\x01\x02me\x04word"]


def test_authorities_may_be_a_directory_and_the_version_of_tls_one(binary: Path, tmp_path: Path, node_with: Callable[[str], Node]) -> None:
    """`--capath`, `--tls-version`, `--tls-alpn`."""
    pki.authority(tmp_path, "ca")
    pki.sign(tmp_path, "ca", "node", "node")
    (tmp_path / "trusted").mkdir()
    shutil.copy(tmp_path / "ca.crt", tmp_path / "trusted/site.pem")
    (tmp_path / "trusted/README").write_text("whom we trust")
    port, _, _ = free_base(1)
    node_with(f'[listener.tls]\nport = {port}\ncert_file = "{tmp_path}/node.crt"\nkey_file = "{tmp_path}/node.key"\n')
    common = ["pub", "-h", HOST, "-p", str(port), "-q", "1", "-t", "a", "-m", "x"]
    for version in ("tlsv1.2", "tlsv1.3"):
        done = run(binary, *common, "--capath", str(tmp_path / "trusted"), "--tls-version", version)
        assert (done.returncode, done.stderr) == (0, ""), version
    (tmp_path / "nobody").mkdir()
    empty = run(binary, *common, "--capath", str(tmp_path / "nobody"))
    assert empty.returncode == 2 and f"--capath {tmp_path}/nobody" in empty.stderr


def test_a_share_of_the_messages_is_drawn(cluster: Cluster, binary: Path) -> None:
    """`--random-filter`: all, none, and something in between of 200 (outside of 40 to 160 once in 10^17 runs)."""
    for topic in ("s/1", "s/2"):
        lines = "\n".join(str(number) for number in range(100))
        assert run(binary, "pub", "-p", str(cluster.port), "-q", "1", "-r", "-t", topic, "-m", lines).returncode == 0
    listen = ["sub", "-p", str(cluster.port), "-t", "s/#", "-W", "1"]
    assert run(binary, *listen, "--random-filter", "100", "-F", "%t").stdout.split() == ["s/1", "s/2"]
    assert run(binary, *listen, "--random-filter", "0", "-F", "%t").stdout == ""
    command = [str(binary), "sub", "-p", str(cluster.port), "-q", "1", "-t", "draw", "-t", "end", "--random-filter", "50", "-d", "-W", "30"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as listener:
        assert listener.stderr and listener.stdout
        while "SubAck" not in (line := listener.stderr.readline()):
            assert line, "the subscriber ended early"
        sent = "\n".join(["x"] * 200)
        assert run(binary, "pub", "-p", str(cluster.port), "-q", "1", "-t", "draw", "-l", input=sent).returncode == 0
        came = 0
        while came < 200:
            came += "received Publish" in listener.stderr.readline()
        listener.terminate()
        assert 40 <= listener.stdout.read().count("x") <= 160


def test_completions_and_manual_pages_name_each_command(binary: Path, tmp_path: Path) -> None:
    """A page for each command; a script that bash can read for completions."""
    commands = [line.split()[0] for line in run(binary, "--help").stdout.split("Commands:")[1].split("Options:")[0].splitlines() if line.startswith("  ") and line[2] != " "]
    assert {"serve", "completions", "man"} <= set(commands) and "help" in commands
    assert run(binary, "man", str(tmp_path / "man")).returncode == 0
    for command in set(commands) - {"help"}:
        page = (tmp_path / f"man/sedge-{command}.1").read_text()
        assert page.startswith(".ie") and ".SH NAME" in page, command
    for shell in ("bash", "zsh", "fish"):
        script = run(binary, "completions", shell).stdout
        assert all(command in script for command in commands), shell
    bash = shutil.which("bash")
    assert bash
    ask = f'source <("{binary}" completions bash); COMP_WORDS=(sedge conf); COMP_CWORD=1; _sedge sedge conf sedge; echo "${{COMPREPLY[@]}}"'
    assert subprocess.run([bash, "-c", ask], capture_output=True, text=True, timeout=20, check=True).stdout == "config\n"
    assert run(binary, "completions", "tcsh").returncode == 2


def test_the_configuration_says_who_set_what(binary: Path, tmp_path: Path) -> None:
    """`sedge config show`: file and line, variable, default; secrets are not shown; what it prints is a configuration that means the same."""
    file = tmp_path / "sedge.toml"
    file.write_text('[node]\nname = "gw \\"1\\""\n\n[listener.ws]\n\n[cluster]\nkey = "0123456789abcdef0123"\n')
    env = {"SEDGE_CLUSTER__SEEDS": "a,b", "SEDGE_MQTT__PORT": "1999", "PATH": "/usr/bin"}
    shown = run(binary, "config", "show", "-c", str(file), "--json", env=env)
    found = {entry["key"]: entry for entry in json.loads(shown.stdout)}
    assert found["node.name"] | {"words": None} == {"key": "node.name", "value": 'gw "1"', "words": None, "from": f"{file}:2:8"}
    assert (found["mqtt.port"]["value"], found["mqtt.port"]["from"]) == (1999, "environment variable SEDGE_MQTT__PORT")
    assert found["cluster.seeds"]["value"] == ["a", "b"]
    assert (found["http.port"]["value"], found["http.port"]["from"]) == (8080, "default")
    assert found["cluster.key"]["value"] is None and "0123456789abcdef" not in shown.stdout
    assert found["listener.ws.max_connections"]["value"] == 0
    text = run(binary, "config", "show", "-c", str(file), env=env).stdout
    again = tmp_path / "again.toml"
    again.write_text(text)
    assert run(binary, "config", "check", "-c", str(again)).returncode == 0
    second = {entry["key"]: entry["value"] for entry in json.loads(run(binary, "config", "show", "-c", str(again), "--json", env={"PATH": "/usr/bin"}).stdout)}
    assert all(second[key] == entry["value"] for key, entry in found.items())
    few = run(binary, "config", "show", "-c", str(file), "--set", env=env).stdout
    assert "http" not in few and "1999" in few
    defaults = tmp_path / "defaults.toml"
    defaults.write_text(run(binary, "config", "default").stdout)
    assert run(binary, "config", "show", "-c", str(defaults), "--set", env={"PATH": "/usr/bin"}).stdout.strip() == ""


def test_systemd_hears_that_the_node_listens_lives_and_stops(binary: Path, tmp_path: Path) -> None:
    """`Type=notify` and `WatchdogSec=`, with a socket of ours in place of systemd's; and a credential in place of a key file."""
    told = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    told.bind(str(tmp_path / "notify"))
    told.settimeout(20)
    (tmp_path / "credentials").mkdir()
    (tmp_path / "credentials/cluster.key").write_text("a secret of the cluster, long enough")
    port, http, cluster = free_base(1)
    env = {
        "PATH": "/usr/bin", "NOTIFY_SOCKET": str(tmp_path / "notify"), "WATCHDOG_USEC": "600000", "CREDENTIALS_DIRECTORY": str(tmp_path / "credentials"),
        "SEDGE_MQTT__PORT": str(port), "SEDGE_HTTP__PORT": str(http), "SEDGE_CLUSTER__PORT": str(cluster),
    }
    with subprocess.Popen([str(binary), "serve"], env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as node:
        try:
            assert told.recv(1000).startswith(b"READY=1\n")
            assert [told.recv(1000) for _ in range(3)] == [b"WATCHDOG=1"] * 3
            node.terminate()
            said = told.recv(1000)
            while said == b"WATCHDOG=1":
                said = told.recv(1000)
            assert said.startswith(b"STOPPING=1\n")
            assert node.wait(20) == 0
        finally:
            if node.poll() is None:
                node.kill()
    shown = json.loads(run(binary, "config", "show", "--json", env=env).stdout)
    assert {"key": "cluster.key_file", "value": str(tmp_path / "credentials/cluster.key")}.items() <= next(e for e in shown if e["key"] == "cluster.key_file").items()
