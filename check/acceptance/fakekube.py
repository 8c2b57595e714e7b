"""The few calls of the Kubernetes API that the driver makes, without Kubernetes: for the gate, which cannot build the real server."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from kube import HOST, NAMESPACE, SCALER, SET, Refused

SCALE = f"/apis/apps/v1/namespaces/{NAMESPACE}/statefulsets/{SET}/scale"
PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"


class FakePlane:
    """One stateful set and its pods. It refuses the same as the real server: a wrong token, an old version, another kind of patch."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.size: int | None = None
        self.version, self.made = 1, 0
        self.pods: dict[str, dict[str, Any]] = {}
        self.lock = threading.RLock()
        self.server = ThreadingHTTPServer((HOST, 0), self.handler())
        self.port = self.server.server_address[1]
        self.api = f"http://{HOST}:{self.port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def handler(self) -> type[BaseHTTPRequestHandler]:
        """The class that answers the driver's requests."""
        plane = self

        class Handler(BaseHTTPRequestHandler):
            def answer(self, method: str) -> None:
                body = json.loads(self.rfile.read(int(self.headers.get("Content-Length", 0))) or b"null")
                try:
                    if self.headers.get("Authorization") != f"Bearer {SCALER}":
                        raise Refused(401, "Unauthorized")
                    if method == "PATCH" and self.headers.get("Content-Type") != "application/merge-patch+json":
                        raise Refused(415, "the body of the request was in an unknown format")
                    status, said = 200, plane.call(method, self.path, body)
                except Refused as refused:
                    status, said = refused.status, {"kind": "Status", "message": str(refused)}
                data = json.dumps(said).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def do_GET(self) -> None:  # noqa: N802
                self.answer("GET")

            def do_PATCH(self) -> None:  # noqa: N802
                self.answer("PATCH")

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002
                pass

        return Handler

    def install(self, replicas: int) -> None:
        """The set."""
        with self.lock:
            self.size = replicas
            self.reconcile()

    def reconcile(self) -> None:
        """Does the work of the controller of stateful sets."""
        size = self.size or 0
        for ordinal in range(size):
            if (name := f"{SET}-{ordinal}") not in self.pods:
                self.made += 1
                self.pods[name] = {"metadata": {"name": name, "uid": f"uid-{self.made}"}, "spec": {"nodeName": "local"}, "status": {}}
        for name, pod in self.pods.items():
            if int(name.rpartition("-")[2]) >= size:
                pod["metadata"].setdefault("deletionTimestamp", "2026-01-01T00:00:00Z")

    def call(self, method: str, path: str, body: Any = None, kind: str = "") -> Any:
        """One request, of the driver or of the kubelet."""
        with self.lock:
            if path == SCALE:
                return self.scale(method, body)
            if path == PODS:
                return {"items": json.loads(json.dumps(list(self.pods.values())))}
            name, _, part = path.removeprefix(f"{PODS}/").partition("/")
            if name not in self.pods:
                raise Refused(404, f'pods "{name}" not found')
            if part == "status":
                self.pods[name]["status"] = body["status"]
            elif method == "DELETE" and body is None:
                self.pods[name]["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
            elif method == "DELETE":
                del self.pods[name]
                self.reconcile()
                return None
            return json.loads(json.dumps(self.pods[name]))

    def scale(self, method: str, body: Any) -> Any:
        """The scale of the set."""
        if self.size is None:
            raise Refused(404, f'statefulsets.apps "{SET}" not found')
        if method == "PATCH":
            if body["metadata"]["resourceVersion"] != str(self.version):
                raise Refused(409, "the object has been modified")
            self.size, self.version = int(body["spec"]["replicas"]), self.version + 1
            self.reconcile()
        spec = {"replicas": self.size} if self.size else {}
        return {"kind": "Scale", "metadata": {"name": SET, "resourceVersion": str(self.version)}, "spec": spec}

    def account(self) -> Path:
        """The folder of the service account, as a pod finds it."""
        folder = self.folder / "account"
        folder.mkdir(exist_ok=True)
        (folder / "token").write_text(SCALER)
        (folder / "namespace").write_text(NAMESPACE)
        return folder

    def replicas(self) -> int:
        """Replicas that the set is to have."""
        return self.size or 0

    def close(self) -> None:
        """Ends the server."""
        self.server.shutdown()
        self.server.server_close()
