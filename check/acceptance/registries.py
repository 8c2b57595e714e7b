"""Services that nodes register with or look into: etcd, a real one or one that behaves so, and the API of Kubernetes."""

from __future__ import annotations

import base64
import json
import ssl
import subprocess
import threading
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import parse_qs, urlparse

from cluster import HOST, free_base, wait_for


class Refusal(Exception):
    """An answer with another status than 200."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status, self.message = status, message


class Web:
    """An HTTP server in this process, with TLS if there is a certificate; subclasses answer."""

    def __init__(self, port: int = 0, context: ssl.SSLContext | None = None) -> None:
        web, self.closed = self, False

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def respond(self) -> None:
                if web.closed:  # on a connection that is kept alive
                    self.close_connection = True
                    return
                length = int(self.headers.get("content-length", 0))
                body = json.loads(self.rfile.read(length) or b"{}")
                try:
                    status, said = 200, web.answer(self.path, self.headers.get("authorization", ""), body)
                except Refusal as refusal:
                    status, said = refusal.status, {"message": refusal.message}
                text = json.dumps(said).encode()
                self.send_response(status)
                self.send_header("content-length", str(len(text)))
                self.end_headers()
                self.wfile.write(text)

            do_GET = do_POST = respond  # noqa: N815 (the names that the library calls)

            def log_message(self, format: str, *args: object) -> None:
                """Not to the terminal."""

        self.server = ThreadingHTTPServer((HOST, port), Handler)
        if context:
            self.server.socket = context.wrap_socket(self.server.socket, server_side=True)
        self.port = self.server.server_port
        threading.Thread(target=self.server.serve_forever, args=(0.05,), daemon=True).start()

    def answer(self, path: str, authorization: str, body: dict[str, Any]) -> dict[str, Any]:
        """The answer to one request."""
        raise NotImplementedError

    def close(self) -> None:
        """No more answers."""
        self.closed = True
        self.server.shutdown()
        self.server.server_close()


def server_context(folder: Path, name: str, clients: str | None = None) -> ssl.SSLContext:
    """TLS with NAME.crt and NAME.key; with `clients` only for clients with a certificate of that authority."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / f"{name}.crt", folder / f"{name}.key")
    if clients:
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(folder / f"{clients}.crt")
    return context


def b64(text: str) -> str:
    """As the gateway wants keys and values."""
    return base64.b64encode(text.encode()).decode()


class Etcd(Protocol):
    """The calls that tests need of either etcd."""

    port: int

    def keys(self) -> dict[str, str]:
        """All keys with their values."""

    def put(self, key: str, value: str) -> None:
        """Sets a key that does not expire."""

    def close(self) -> None:
        """Ends it."""


class FakeEtcd(Web):
    """The part of etcd's JSON gateway that nodes use. Leases end only when the test says so."""

    def __init__(self, port: int = 0, context: ssl.SSLContext | None = None, user: tuple[str, str] | None = None) -> None:
        self.store: dict[str, tuple[str, str]] = {}  # key: value, lease
        self.leases: set[str] = set()
        self.user, self.token, self.last = user, "token-0", 0
        super().__init__(port, context)

    def answer(self, path: str, authorization: str, body: dict[str, Any]) -> dict[str, Any]:
        def plain(field: str) -> str:
            return base64.b64decode(body[field]).decode()

        if path == "/v3/auth/authenticate":
            if self.user != (body["name"], body["password"]):
                raise Refusal(400, "etcdserver: authentication failed, invalid user ID or password")
            return {"token": self.token}
        if self.user and authorization != self.token:
            raise Refusal(401, "etcdserver: invalid auth token")
        if path == "/v3/lease/grant":
            assert int(body["TTL"]) >= 15, body
            self.last += 1
            self.leases.add(str(self.last))
            return {"ID": str(self.last), "TTL": body["TTL"]}
        if path == "/v3/lease/keepalive":
            return {"result": {"ID": body["ID"], **({"TTL": "15"} if body["ID"] in self.leases else {})}}
        if path == "/v3/lease/revoke":
            self.expire(body["ID"])
            return {}
        if path == "/v3/kv/put":
            if body["lease"] not in self.leases:
                raise Refusal(404, "etcdserver: requested lease not found")
            self.store[plain("key")] = (plain("value"), body["lease"])
            return {}
        assert path == "/v3/kv/range", path
        found = {key: value for key, (value, _) in self.store.items() if plain("key") <= key < plain("range_end")}
        return {"kvs": [{"key": b64(key), "value": b64(value)} for key, value in found.items()]} if found else {}

    def expire(self, lease: str) -> None:
        """Ends a lease, and with it the keys that hang on it."""
        self.leases.discard(lease)
        self.store = {key: entry for key, entry in self.store.items() if entry[1] != lease}

    def keys(self) -> dict[str, str]:
        return {key: value for key, (value, _) in self.store.items()}

    def put(self, key: str, value: str) -> None:
        self.store[key] = (value, "")


class RealEtcd:
    """The `etcd` of this machine."""

    def __init__(self, program: str, folder: Path) -> None:
        self.port, peers, _ = free_base(1)
        here, there = f"http://{HOST}:{self.port}", f"http://{HOST}:{peers}"
        with open(folder / "etcd.log", "wb") as log:
            self.process = subprocess.Popen(
                [program, "--name", "one", "--data-dir", str(folder / "etcd"), "--listen-client-urls", here, "--advertise-client-urls", here,
                 "--listen-peer-urls", there, "--initial-advertise-peer-urls", there, "--initial-cluster", f"one={there}"],
                stdout=log, stderr=log)
        try:
            wait_for("etcd answers", self._answers, 20)
        except BaseException:
            self.close()
            raise

    def _answers(self) -> bool:
        try:
            return self.keys() == {}
        except OSError:
            return False

    def call(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        """One request."""
        request = urllib.request.Request(f"http://{HOST}:{self.port}/v3/{path}", json.dumps(body).encode(), {"content-type": "application/json"})
        with urllib.request.urlopen(request, timeout=5) as answer:
            found: dict[str, Any] = json.load(answer)
        return found

    def keys(self) -> dict[str, str]:
        """All keys with their values."""
        found = self.call("kv/range", {"key": b64("\0"), "range_end": b64("\0")}).get("kvs", [])
        return {base64.b64decode(one["key"]).decode(): base64.b64decode(one["value"]).decode() for one in found}

    def put(self, key: str, value: str) -> None:
        """Sets a key that does not expire."""
        self.call("kv/put", {"key": b64(key), "value": b64(value)})

    def close(self) -> None:
        """Ends it."""
        self.process.terminate()
        self.process.wait(20)


class FakeKubernetes(Web):
    """The list of `EndpointSlices` of one service, a slice a page, for clients with the token."""

    def __init__(self, context: ssl.SSLContext, namespace: str, service: str) -> None:
        self.namespace, self.service, self.token = namespace, service, "first token"
        self.slices: list[dict[str, Any]] = []
        self.pages = 0
        super().__init__(0, context)

    def answer(self, path: str, authorization: str, body: dict[str, Any]) -> dict[str, Any]:
        if authorization != f"Bearer {self.token}":
            raise Refusal(401, "Unauthorized")
        url = urlparse(path)
        if url.path != f"/apis/discovery.k8s.io/v1/namespaces/{self.namespace}/endpointslices":
            raise Refusal(403, f'endpointslices.discovery.k8s.io is forbidden: cannot list resource in {url.path.split("/")[-2]}')
        query = {key: values[0] for key, values in parse_qs(url.query).items()}
        assert query["labelSelector"] == f"kubernetes.io/service-name={self.service}", query
        # As opaque as the real one.
        at = int(query["continue"].strip("+/=")) if "continue" in query else 0
        self.pages += 1
        more = {"continue": f"+/{at + 1}=="} if at + 1 < len(self.slices) else {}
        return {"kind": "EndpointSliceList", "apiVersion": "discovery.k8s.io/v1", "metadata": more, "items": self.slices[at:at + 1]}


def pod(port: int, **conditions: bool) -> dict[str, Any]:
    """A slice with one pod: those of one machine differ in their ports."""
    return {"addressType": "IPv4", "metadata": {"name": f"sedge-{port}"},
            "ports": [{"name": "mqtt", "port": 1883, "protocol": "TCP"}, {"name": "cluster", "port": port, "protocol": "UDP"}],
            "endpoints": [{"addresses": [HOST], "conditions": {"ready": True, "serving": True, "terminating": False, **conditions}}]}
