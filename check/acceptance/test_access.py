"""Accounts and access rules of one node, with real clients (MQ-19)."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, padding, rsa
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature
from paho.mqtt.client import Client, MQTTMessage
from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion

from cluster import HOST, free_base, get, metric, wait_for

V4, V5 = MQTTProtocolVersion.MQTTv311, MQTTProtocolVersion.MQTTv5
SECRET = b"0123456789abcdef0123456789abcdef"
HTTP_TIMEOUT = 1.0
RULES = """\
topic read public/#
user anna
topic readwrite home/#
topic deny home/cellar/#
topic read $SYS/#
user carol
topic readwrite #
pattern write devices/%c/state
pattern read inbox/%u/#
"""


class Server(BaseHTTPRequestHandler):
    """Knows dave; never answers about slow ones."""

    def do_POST(self) -> None:
        """One question."""
        asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
        if asked["user"].startswith("slow"):
            time.sleep(HTTP_TIMEOUT * 3)  # longer than the node waits
        self.send_response(200 if (asked["user"], asked["password"]) == ("dave", "daves") else 403)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, *args: object) -> None:
        """Says nothing."""


class Node:
    """One node with accounts."""

    def __init__(self, binary: Path, folder: Path, *, keys: str, url: str) -> None:
        self.passwords, self.rules = folder / "passwd", folder / "acl"
        run = lambda *words, **more: subprocess.run([str(word) for word in words], check=True, timeout=20, **more)  # noqa: E731
        run(binary, "passwd", "-c", self.passwords, "anna", input="annas\n", text=True)
        run(binary, "passwd", "-b", self.passwords, "bob", "bobs")
        run("mosquitto_passwd", "-b", self.passwords, "carol", "carols")
        self.rules.write_text(RULES)
        (folder / "keys").write_text(keys)
        self.port, self.http, cluster = free_base(1)
        config = folder / "sedge.toml"
        config.write_text(
            f'[mqtt]\nbind = "{HOST}"\nport = {self.port}\n[http]\nport = {self.http}\n[cluster]\nbind = "{HOST}"\nport = {cluster}\n'
            f'[auth]\npassword_file = "{self.passwords}"\njwt_keys_file = "{folder}/keys"\njwt_issuer = "tests"\n'
            f'jwt_audience = "mqtt"\njwt_client_claim = "cid"\nhttp_url = "{url}"\nhttp_timeout = "1s"\n[acl]\nfile = "{self.rules}"\n')
        self.log = open(folder / "log", "w+")  # noqa: SIM115 (lives as long as the node)
        self.process = subprocess.Popen([str(binary), "serve", "-c", str(config)], stdout=self.log, stderr=subprocess.STDOUT)
        wait_for("the node is ready", self._ready)
        self.clients: list[Client] = []

    def _ready(self) -> bool:
        assert self.process.poll() is None, Path(self.log.name).read_text()
        try:
            return bool(get(f"http://{HOST}:{self.http}/health/ready"))
        except OSError:
            return False

    def stop(self) -> None:
        """Ends it."""
        self.process.terminate()
        self.process.wait(10)
        self.log.close()

    def connect(self, client_id: str, user: str | None, password: str | None, version: MQTTProtocolVersion = V5,
                will: str | None = None) -> Someone:
        """A client with its CONNACK."""
        return Someone(self, client_id, user, password, version, will)


class Someone:
    """A Paho client that remembers what it is told."""

    def __init__(self, node: Node, client_id: str, user: str | None, password: str | None, version: MQTTProtocolVersion,
                 will: str | None) -> None:
        self.told: list[int] = []
        self.left: list[int] = []
        self.answers: dict[int, list[Any]] = {}
        self.got: list[tuple[str, str]] = []
        self.paho = Client(CallbackAPIVersion.VERSION2, client_id=client_id, protocol=version, reconnect_on_failure=False)
        if user is not None or password is not None:
            self.paho.username_pw_set(user, password)
        if will:
            self.paho.will_set(will, "gone", 1)
        self.paho.on_connect = lambda _c, _u, _f, reason, _p: self.told.append(reason.value)
        self.paho.on_subscribe = lambda _c, _u, mid, reasons, _p: self.answers.__setitem__(mid, [r.value for r in reasons])
        self.paho.on_publish = lambda _c, _u, mid, reason, _p: self.answers.__setitem__(mid, [reason.value])
        self.paho.on_disconnect = lambda _c, _u, _f, reason, _p: self.left.append(reason.value)
        self.paho.on_message = self._message
        self.paho.connect(HOST, node.port)
        self.paho.loop_start()
        wait_for("a CONNACK", lambda: self.told)
        self.reason = self.told[0]
        if self.reason:
            self.close()

    def _message(self, _client: Client, _data: object, message: MQTTMessage) -> None:
        self.got.append((message.topic, message.payload.decode()))

    def close(self) -> None:
        """Leaves."""
        self.paho.disconnect()
        self.paho.loop_stop()

    def subscribe(self, topic: str) -> int:
        """The reason in the SUBACK."""
        mid = self.paho.subscribe(topic, 1)[1]
        assert mid is not None
        return int(wait_for("a SUBACK", lambda: self.answers.get(mid))[0])

    def publish(self, topic: str, payload: str = "x", qos: int = 1) -> int:
        """The reason in PUBACK or PUBREC."""
        sent = self.paho.publish(topic, payload, qos)
        return int(wait_for("an acknowledgement", lambda: self.answers.get(sent.mid))[0])


def part(value: bytes | dict[str, Any]) -> str:
    """One part of a token."""
    raw = value if isinstance(value, bytes) else json.dumps(value).encode()
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


def number(value: int) -> str:
    """An integer of a JWK."""
    return part(value.to_bytes((value.bit_length() + 7) // 8, "big"))


RSA = rsa.generate_private_key(65537, 2048)
P256 = ec.generate_private_key(ec.SECP256R1())
ED = ed25519.Ed25519PrivateKey.generate()


def keys() -> str:
    """A JWK Set with the public halves."""
    open_rsa, open_ec = RSA.public_key().public_numbers(), P256.public_key().public_numbers()
    return json.dumps({"keys": [
        {"kty": "oct", "kid": "h", "k": part(SECRET)},
        {"kty": "RSA", "kid": "r", "n": number(open_rsa.n), "e": number(open_rsa.e)},
        {"kty": "EC", "crv": "P-256", "kid": "e", "x": part(open_ec.x.to_bytes(32, "big")), "y": part(open_ec.y.to_bytes(32, "big"))},
        {"kty": "OKP", "crv": "Ed25519", "kid": "d", "x": part(ED.public_key().public_bytes_raw())},
    ]})


def es256(message: bytes) -> bytes:
    """An ECDSA signature as tokens have it."""
    r, s = decode_dss_signature(P256.sign(message, ec.ECDSA(hashes.SHA256())))
    return r.to_bytes(32, "big") + s.to_bytes(32, "big")


SIGN: dict[str, Callable[[bytes], bytes]] = {
    "HS256": lambda message: hmac.new(SECRET, message, hashlib.sha256).digest(),
    "RS256": lambda message: RSA.sign(message, padding.PKCS1v15(), hashes.SHA256()),
    "ES256": es256,
    "EdDSA": ED.sign,
}


def token(algorithm: str, **claims: Any) -> str:
    """A token for anna with client id `t`, unless `claims` say otherwise."""
    body = {"sub": "anna", "iss": "tests", "aud": "mqtt", "cid": "t", "exp": int(time.time()) + 60, **claims}
    message = f"{part({'alg': algorithm, 'typ': 'JWT'})}.{part(body)}"
    return f"{message}.{part(SIGN[algorithm](message.encode()))}"


@pytest.fixture(scope="module")
def node(binary: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    """A node with all kinds of accounts, and the server that it asks."""
    server = ThreadingHTTPServer((HOST, 0), Server)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    url = f"http://{HOST}:{server.server_address[1]}/auth"
    running = Node(binary, tmp_path_factory.mktemp("access"), keys=keys(), url=url)
    yield running
    running.stop()
    server.shutdown()


@pytest.mark.parametrize(("version", "refused"), [(V4, 134), (V5, 134)])
def test_passwords_of_both_programs(node: Node, version: MQTTProtocolVersion, refused: int) -> None:
    """MQ-19: right ones are taken; wrong ones are refused with 0x86, in 3.1.1 code 4 (which Paho shows as 134)."""
    for user in ("anna", "bob", "carol", "dave"):
        someone = node.connect(f"c-{user}", user, f"{user}s", version)
        assert someone.reason == 0, user
        someone.close()
        assert node.connect(f"c-{user}", user, "wrong", version).reason == refused, user
    assert node.connect("x", "nobody", "x", version).reason == refused
    assert node.connect("x", None, None, version).reason == 135, "with accounts nobody is anonymous"


@pytest.mark.parametrize("algorithm", SIGN)
def test_tokens(node: Node, algorithm: str) -> None:
    """MQ-19: signature and claims count."""
    someone = node.connect("t", "anna", token(algorithm))
    assert someone.reason == 0
    assert someone.publish("home/1") in (0, 16), "the user name of the token has anna's rights"
    someone.close()
    for claims in ({"exp": int(time.time()) - 60}, {"nbf": int(time.time()) + 60}, {"iss": "x"}, {"aud": ["x"]}, {"cid": "u"}, {"sub": "bob"}):
        assert node.connect("t", "anna", token(algorithm, **claims)).reason == 134, claims
    good = token(algorithm)
    assert node.connect("t", "anna", f"{good[:-8]}AAAAAAA{good[-1]}").reason == 134


def test_a_slow_server_holds_up_nobody_else(node: Node) -> None:
    """MQ-19: after `auth.http_timeout` the client is told to come later (0x88); meanwhile others connect."""
    reasons: list[int] = []
    started = time.monotonic()
    waiting = threading.Thread(target=lambda: reasons.append(node.connect("s", "slow", "x").reason))
    waiting.start()
    others = 0
    while waiting.is_alive() and others < 5:
        someone = node.connect(f"o{others}", "anna", "annas")
        assert someone.reason == 0
        someone.close()
        others += 1
    assert others == 5 and waiting.is_alive()
    waiting.join(10)
    assert reasons == [136] and time.monotonic() - started >= HTTP_TIMEOUT


@pytest.mark.parametrize("version", [V4, V5])
def test_publish_subscribe_and_will_are_judged(node: Node, version: MQTTProtocolVersion) -> None:
    """MQ-19: 0x87 for 5.0; 3.1.1 sees an acknowledgement and nobody the message."""
    listener = node.connect("l", "carol", "carols", version)
    assert listener.subscribe("#") < 128
    anna = node.connect("a", "anna", "annas", version)
    for qos in (1, 2):
        assert anna.publish("home/ok", "yes", qos) < 128
        denied = anna.publish("home/cellar/x", "no", qos)
        # Paho answers PUBREC 0x87 with a PUBREL all the same, and shows what it gets for that: 0x92.
        assert denied == (0 if version == V4 else 135 if qos == 1 else 146)
        assert anna.publish("devices/b/state", "no", qos) == denied
        assert anna.publish("devices/a/state", "yes", qos) < 128
    wait_for("what is allowed", lambda: len(listener.got) >= 4)
    assert {payload for _, payload in listener.got} == {"yes"}
    for topic in ("home/cellar/#", "else/where", "$share/g/home/cellar/x", "inbox/bob/1"):
        assert anna.subscribe(topic) == (135 if version == V5 else 128), topic
    assert anna.subscribe("#") < 128 and anna.subscribe("$share/g/home/#") < 128
    carol = node.connect("w", "carol", "carols", version)
    carol.publish("else/where", "hidden")
    carol.publish("home/cellar/x", "hidden")
    carol.publish("inbox/anna/1", "seen")
    wait_for("what may be read", lambda: ("inbox/anna/1", "seen") in anna.got)
    assert "hidden" not in {payload for _, payload in anna.got}
    assert node.connect("v", "anna", "annas", version, will="home/cellar/w").reason == 135
    for someone in (listener, anna, carol):
        someone.close()


def test_rules_are_exchanged_under_load(node: Node) -> None:
    """MQ-19: the next publication is judged by the new rules; a broken file changes nothing; nobody is disconnected."""
    reader = node.connect("reader", "anna", "annas")
    assert reader.subscribe("home/#") < 128
    writer = node.connect("writer", "carol", "carols")
    stop = threading.Event()

    def load() -> None:
        while not stop.is_set():
            writer.publish("home/load")

    busy = threading.Thread(target=load)
    busy.start()
    try:
        wait_for("messages flow", lambda: len(reader.got) > 20)
        node.rules.write_text(RULES.replace("topic readwrite home/#", "topic write home/#"))
        assert reload(node)[0] == 200
        count = len(reader.got)
        sent = metric(node.http, "sedge_refused_publications_total")
        assert reader.publish("home/mine") < 128 and metric(node.http, "sedge_refused_publications_total") == sent
        wait_for("messages are kept back", lambda: metric(node.http, "sedge_dropped_messages_total", cause="not_authorized") > 20)
        assert len(reader.got) <= count + 20, "what was on its way"
        node.rules.write_text(RULES + "allow everything\n")
        status, problem = reload(node)
        assert status == 422 and f"{node.rules}:{len(RULES.splitlines()) + 1}" in problem, problem
        node.rules.write_text(RULES)
        assert reload(node)[0] == 200
        count = len(reader.got)
        wait_for("messages flow again", lambda: len(reader.got) > count + 20)
    finally:
        stop.set()
        busy.join(10)
    assert len(reader.told) == 1 and len(writer.told) == 1, "nobody had to connect again"
    reader.close()
    writer.close()


def test_a_token_that_expires_ends_the_connection(node: Node) -> None:
    """MQ-19: at `exp` and the 10 s by which clocks may differ."""
    expired = metric(node.http, "sedge_authentications_expired_total")
    ends = [node.connect("t", "anna", token("HS256", exp=int(time.time()) - 8))]
    stays = node.connect("u", "anna", token("HS256", cid="u"))
    assert all(someone.reason == 0 for someone in ends)
    wait_for("the end", lambda: all(someone.left for someone in ends))
    assert ends[0].left == [160], "maximum connect time"
    assert stays.publish("home/1") < 128 and not stays.left
    assert metric(node.http, "sedge_authentications_expired_total") == expired + 1
    stays.close()


@pytest.mark.parametrize("version", [V4, V5])
def test_who_loses_an_account_is_disconnected(binary: Path, node: Node, version: MQTTProtocolVersion) -> None:
    """MQ-19: removed or with another password: 0x87; everybody else stays connected."""
    before = node.passwords.read_text()
    removed = node.connect("removed", "bob", "bobs", version)
    changed = node.connect("changed", "carol", "carols", version)
    others = [node.connect("kept", "anna", "annas", version), node.connect("asked", "dave", "daves", version),
              node.connect("t", "bob", token("HS256", sub="bob"), version)]
    assert all(someone.reason == 0 for someone in (removed, changed, *others))
    try:
        subprocess.run([str(binary), "passwd", "-D", str(node.passwords), "bob"], check=True, timeout=20)
        subprocess.run([str(binary), "passwd", "-b", str(node.passwords), "carol", "new"], check=True, timeout=20)
        assert reload(node)[0] == 200
        for someone in (removed, changed):
            wait_for("the end", lambda someone=someone: someone.left)
            assert version == V4 or someone.left == [135]
        assert node.connect("removed", "bob", "bobs", version).reason == 134
        assert node.connect("changed", "carol", "carols", version).reason == 134
        again = node.connect("changed", "carol", "new", version)
        assert again.reason == 0
        again.close()
        assert all(someone.publish("home/1") is not None and not someone.left for someone in others)
    finally:
        node.passwords.write_text(before)
        assert reload(node)[0] == 200
        for someone in others:
            someone.close()


def test_an_account_for_scram_takes_passwords_too(binary: Path, node: Node) -> None:
    """MQ-19: the authentication with AUTH is in check/conformance."""
    before = node.passwords.read_text()
    try:
        for user, flag in (("erin", "--scram"), ("frank", "--scram=sha-512")):
            subprocess.run([str(binary), "passwd", "-b", flag, str(node.passwords), user, f"{user}s"], check=True, timeout=20)
        assert reload(node)[0] == 200
        for user in ("erin", "frank"):
            someone = node.connect("s", user, f"{user}s")
            assert someone.reason == 0
            someone.close()
            assert node.connect("s", user, "wrong").reason == 134
    finally:
        node.passwords.write_text(before)
        assert reload(node)[0] == 200


def reload(node: Node) -> tuple[int, str]:
    """Status and body of a reload."""
    done = subprocess.run(["curl", "-s", "-X", "POST", "-H", "X-Sedge: 1", "-w", "\n%{http_code}", f"http://{HOST}:{node.http}/api/v1/reload"],
                          capture_output=True, text=True, check=True, timeout=10)
    body, _, status = done.stdout.rpartition("\n")
    return int(status), body


def test_broken_files_are_named_with_their_lines(binary: Path, tmp_path: Path) -> None:
    """MQ-19: exit code 2, file and line."""
    (tmp_path / "passwd").write_text("anna:plain\n")
    (tmp_path / "acl").write_text("user anna\ntopik x\n")
    (tmp_path / "sedge.toml").write_text(
        f'[auth]\npassword_file = "{tmp_path}/passwd"\nhttp_url = "https://x"\n[acl]\nfile = "{tmp_path}/acl"\n')
    done = subprocess.run([str(binary), "config", "check", "-c", str(tmp_path / "sedge.toml")], capture_output=True, text=True, timeout=20)
    assert done.returncode == 2, done.stderr
    for words in ("passwd:1: the password of", "acl:2: \"topik\" is no rule", "auth.http_url", "sedge.toml:2"):
        assert words in done.stderr, done.stderr


def test_commands_show_the_token_of_the_api(binary: Path, tmp_path: Path) -> None:
    """With a token the API answers nobody else; the commands of sedge take it from a flag, a file or the environment."""
    token = "acceptance-0123456789"
    (tmp_path / "token").write_text(token + "\n")
    port, http, cluster = free_base(1)
    command = [str(binary), "serve", "-c", str(tmp_path / "sedge.toml")]
    (tmp_path / "sedge.toml").write_text(
        f'[mqtt]\nbind = "{HOST}"\nport = {port}\n[cluster]\nbind = "{HOST}"\nport = {cluster}\n'
        f'[http]\nport = {http}\ntoken_file = "{tmp_path}/token"\n')
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def ask(*flags: str, **environment: str) -> subprocess.CompletedProcess[str]:
        words = [str(binary), "status", "--api", f"http://{HOST}:{http}", *flags]
        return subprocess.run(words, capture_output=True, text=True, timeout=20, env=environment)

    def ready() -> bool:
        try:
            return bool(get(f"http://{HOST}:{http}/health/ready"))
        except OSError:
            return False

    try:
        wait_for("the node is ready", ready)
        assert ask("--token-file", str(tmp_path / "token")).returncode == 0
        assert ask("--token", token).returncode == 0
        assert ask(SEDGE_API_TOKEN=token).returncode == 0
        assert ask(SEDGE_API_TOKEN_FILE=str(tmp_path / "token")).returncode == 0
        for refused, words in ((ask(), "--token-file"), (ask("--token", "wrong"), "http.token_file"),
                               (ask("--token-file", str(tmp_path / "sedge.toml")), "not one token")):
            assert refused.returncode != 0 and words in refused.stderr, refused.stderr
            assert token not in refused.stderr
    finally:
        process.terminate()
        process.wait(10)
