"""A Mosquitto broker and the Sedge node that its configuration becomes give the same answers."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

from cluster import HOST, free_base, wait_for
from test_transports import authority, sign

RULES = """
topic read public/#
user anna
topic readwrite home/#
topic deny home/secret
topic read $SYS/#
user device 7
topic write raw/#
user sensor
topic readwrite home/#
pattern readwrite own/%u/#
pattern write client/%c
"""

TOPICS = ["home/a", "home/secret", "raw/a", "public/a", "own/anna/a", "own/admin/a", "own/sensor/a", "client/w7", "client/other", "other"]


@contextmanager
def running(command: list[str], port: int, log: Path) -> Iterator[None]:
    """A broker that takes connections."""
    with log.open("w") as out:
        broker = subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT)
    try:
        probe = ["mosquitto_pub", "-h", HOST, "-p", str(port), "-u", "anna", "-P", "secret", "-t", "home/x", "-n"]
        wait_for("the broker", lambda: subprocess.run(probe, capture_output=True, check=False).returncode == 0)
        yield
    finally:
        broker.terminate()
        broker.wait(10)


def connects(arguments: list[str]) -> bool:
    """Whether somebody may connect."""
    command = ["mosquitto_pub", *arguments, "-t", "public/x", "-n"]
    return subprocess.run(command, capture_output=True, timeout=20, check=False).returncode == 0


def gets(reader: list[str], topic: str, writer: list[str], judge: list[str]) -> bool:
    """Whether a message from `writer` comes to `reader`: retained, so that nobody has to be there first. `judge` may do all."""
    publish = ["mosquitto_pub", *writer, "-t", topic, "-m", "hi", "-q", "1", "-r"]
    subprocess.run(publish, capture_output=True, timeout=20, check=False)
    subscribe = ["mosquitto_sub", *reader, "-t", topic, "-C", "1", "-W", "2"]
    got = subprocess.run(subscribe, capture_output=True, timeout=20, check=False)
    subprocess.run(["mosquitto_pub", *judge, "-t", topic, "-r", "-n", "-q", "1"], capture_output=True, timeout=20, check=True)
    return got.stdout == b"hi\n"


def answers(directory: Path, ports: dict[str, int]) -> dict[str, bool]:
    """The rights of all users at a broker with these ports."""
    plain = ["-h", HOST, "-p", str(ports["tcp"])]
    tls = ["-h", "localhost", "-p", str(ports["tls"]), "--cafile", str(directory / "ca.crt")]
    shown = ["--cert", str(directory / "sensor.crt"), "--key", str(directory / "sensor.key")]
    strange = ["--cert", str(directory / "stranger.crt"), "--key", str(directory / "stranger.key")]
    anna, device, admin = ([*plain, "-u", user, "-P", "secret"] for user in ("anna", "device 7", "admin"))
    sensor = [*tls, *shown]
    found = {
        "anonymous": connects(plain),
        "anna": connects(anna),
        "anna, wrong password": connects([*plain, "-u", "anna", "-P", "wrong"]),
        "anna, no password": connects([*plain, "-u", "anna"]),
        "nobody": connects([*plain, "-u", "nobody", "-P", "secret"]),
        "device 7": connects(device),
        "certificate": connects(sensor),
        "another authority": connects([*tls, *strange]),
        "no certificate": connects(tls),
        "no certificate, password": connects([*tls, "-u", "anna", "-P", "secret"]),
    }
    names = {"anna": anna, "device": device, "admin": admin, "sensor": sensor}

    def ask(number: int) -> dict[str, bool]:
        """The rights of all users for one topic; ids of clients are those of the topic, since a second one would end the first."""
        topic, who = TOPICS[number], {name: [*arguments, "-i", f"w{number}"] for name, arguments in names.items()}
        judge = [*admin, "-i", f"a{number}"]
        written = {f"{name} writes {topic}": gets(judge, topic, mine, judge) for name, mine in who.items()}
        return written | {f"{name} reads {topic}": gets(mine, topic, judge, judge) for name, mine in who.items()}

    with ThreadPoolExecutor(len(TOPICS)) as pool:
        for answer in pool.map(ask, range(len(TOPICS))):
            found |= answer
    return found


def test_a_migrated_broker_gives_the_same_answers(binary: Path, tmp_path: Path) -> None:
    """Accounts, rules, TLS with certificates of clients, WebSocket: each probe is answered as Mosquitto answers it."""
    mosquitto = shutil.which("mosquitto", path="/usr/sbin:/usr/bin")
    assert mosquitto, "mosquitto is missing; ./test installs it"
    authority(tmp_path, "ca")
    authority(tmp_path, "other")
    for ca, name in (("ca", "localhost"), ("ca", "sensor"), ("other", "stranger")):
        sign(tmp_path, ca, name, name)
    (tmp_path / "rules").write_text(RULES + "user admin\ntopic readwrite #\n")
    (tmp_path / "passwords").touch(mode=0o600)
    for user in ("anna", "device 7", "admin"):
        subprocess.run(["mosquitto_passwd", "-b", str(tmp_path / "passwords"), user, "secret"], check=True, capture_output=True)
    (tmp_path / "data").mkdir()
    ports = dict(zip(("tcp", "tls", "ws"), free_base(1), strict=True))
    configuration = tmp_path / "mosquitto.conf"
    configuration.write_text(
        f"password_file {tmp_path}/passwords\nacl_file {tmp_path}/rules\nallow_anonymous false\n"
        f"persistence true\npersistence_location {tmp_path}/data/\nautosave_interval 60\nuser root\n"
        f"max_inflight_messages 10\nmax_queued_messages 100\n"
        f"listener {ports['tcp']} {HOST}\nmax_connections 50\n"
        f"listener {ports['tls']}\ncafile {tmp_path}/ca.crt\ncertfile {tmp_path}/localhost.crt\n"
        f"keyfile {tmp_path}/localhost.key\nrequire_certificate true\nuse_identity_as_username true\n"
        f"listener {ports['ws']}\nprotocol websockets\n"
        f"connection cloud\naddress 127.0.0.1:9\ntopic # out 0 a/ b/\nstart_type lazy\n"
    )
    bare = configuration.read_text().split("connection cloud")[0]
    (tmp_path / "alone.conf").write_text(bare)
    with running([mosquitto, "-c", str(tmp_path / "alone.conf")], ports["tcp"], tmp_path / "mosquitto.log"):
        theirs = answers(tmp_path, ports)

    shutil.rmtree(tmp_path / "data")
    command = [str(binary), "config", "from-mosquitto", str(configuration), "--json"]
    made = json.loads(subprocess.run(command, check=True, capture_output=True, timeout=20).stdout)
    lost = [line.split(": ")[1].split(" ")[0] for line in made["not_carried_over"]]
    # The bridge itself is carried over.
    assert lost == ["user", "start_type"], made["not_carried_over"]
    (tmp_path / "sedge.toml").write_text(made["toml"] + f"\n[http]\nenabled = false\n[cluster]\nbind = \"{HOST}\"\nport = 0\n")
    with running([str(binary), "serve", "-c", str(tmp_path / "sedge.toml")], ports["tcp"], tmp_path / "sedge.log"):
        ours = answers(tmp_path, ports)
        url = f"ws://anna:secret@{HOST}:{ports['ws']}"
        subprocess.run([str(binary), "pub", "-L", url, "-t", "home/ws", "-m", "hi", "-q", "1"], check=True, timeout=20)
    differ = {name: (theirs[name], ours[name]) for name in theirs if theirs[name] != ours[name]}
    assert not differ, f"(Mosquitto, Sedge): {differ}"
    assert {theirs["anna"], theirs["anonymous"]} == {True, False}
    assert 0 < sum(theirs.values()) < len(theirs)
