"""A real Kubernetes API server with the controller of stateful sets, and a small kubelet that starts `sedge` processes as pods."""

from __future__ import annotations

import http.client
import json
import os
import signal
import ssl
import subprocess
import threading
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any, Protocol

from cluster import free_base, wait_for

HOST = "127.0.0.1"
NAMESPACE = "edge"
SET = "sedge"
KEY = "kubernetes-test-key"
TOKEN = "token-of-the-nodes-api"
ADMIN, SCALER = "admin-token", "scaler-token"
# Rights that the documents tell people to give the controller.
ROLE = [
    {"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]},
    {"apiGroups": ["apps"], "resources": ["statefulsets/scale"], "verbs": ["get", "patch"]},
]
GONE = (404, 409)


class Refused(Exception):
    """A status that is no success."""

    def __init__(self, status: int, why: str) -> None:
        super().__init__(why)
        self.status = status


class ControlPlane:
    """etcd, kube-apiserver, kube-controller-manager."""

    def __init__(self, programs: Path, folder: Path) -> None:
        self.folder = folder
        self.processes: list[subprocess.Popen[bytes]] = []
        (etcd, peers, self.port), (manager, _, _) = free_base(1), free_base(1)
        self.api = f"https://{HOST}:{self.port}"
        (folder / "tokens.csv").write_text(f'{ADMIN},admin,1,"system:masters"\n{SCALER},scaler,2\n')
        subprocess.run(["openssl", "genrsa", "-out", folder / "accounts.key", "2048"], check=True, capture_output=True)
        self.run(
            "etcd", f"--data-dir={folder}/etcd", f"--listen-client-urls=http://{HOST}:{etcd}", f"--advertise-client-urls=http://{HOST}:{etcd}",
            f"--listen-peer-urls=http://{HOST}:{peers}", f"--initial-advertise-peer-urls=http://{HOST}:{peers}", f"--initial-cluster=default=http://{HOST}:{peers}",
        )
        self.run(
            str(programs / "kube-apiserver"), f"--etcd-servers=http://{HOST}:{etcd}", f"--bind-address={HOST}", f"--secure-port={self.port}",
            f"--cert-dir={folder}/certs", f"--service-account-key-file={folder}/accounts.key", f"--service-account-signing-key-file={folder}/accounts.key",
            "--service-account-issuer=https://kubernetes.test", "--service-cluster-ip-range=10.96.0.0/16", f"--token-auth-file={folder}/tokens.csv",
            "--authorization-mode=RBAC", "--disable-admission-plugins=ServiceAccount", "--endpoint-reconciler-type=none", f"--advertise-address={HOST}",
        )
        wait_for("the API server is ready", lambda: self.answers("/readyz"), 60)
        config = {
            "apiVersion": "v1", "kind": "Config", "current-context": "test",
            "clusters": [{"name": "test", "cluster": {"server": f"https://{HOST}:{self.port}", "certificate-authority": f"{folder}/certs/apiserver.crt"}}],
            "users": [{"name": "admin", "user": {"token": ADMIN}}], "contexts": [{"name": "test", "context": {"cluster": "test", "user": "admin"}}],
        }
        (folder / "kubeconfig").write_text(json.dumps(config))
        self.run(
            str(programs / "kube-controller-manager"), f"--kubeconfig={folder}/kubeconfig", "--controllers=statefulset-controller",
            "--leader-elect=false", f"--secure-port={manager}", f"--cert-dir={folder}/manager",
        )

    def run(self, *command: str) -> None:
        """Starts a program of the control plane."""
        with (self.folder / f"{Path(command[0]).name}.log").open("wb") as log:
            self.processes.append(subprocess.Popen(command, stdout=log, stderr=log))

    def call(self, method: str, path: str, body: Any = None, kind: str = "application/json", token: str = ADMIN) -> Any:
        """A request as the administrator."""
        trust = ssl.create_default_context(cafile=str(self.folder / "certs" / "apiserver.crt"))
        headers = {"Authorization": f"Bearer {token}", "Content-Type": kind}
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"https://{HOST}:{self.port}{path}", data, headers, method=method)
        with urllib.request.urlopen(request, timeout=10, context=trust) as answer:
            return json.loads(answer.read() or b"null") if "json" in answer.headers["Content-Type"] else answer.read()

    def answers(self, path: str) -> bool:
        """Whether a request succeeds."""
        assert all(process.poll() is None for process in self.processes), f"see {self.folder}"
        try:
            self.call("GET", path)
        except (OSError, http.client.HTTPException):
            return False
        return True

    def install(self, replicas: int) -> None:
        """Makes the objects of the Helm chart, as far as they matter here, and the rights of the controller."""
        core, apps, rights = "/api/v1", "/apis/apps/v1", "/apis/rbac.authorization.k8s.io/v1"
        self.call("POST", f"{core}/namespaces", {"metadata": {"name": NAMESPACE}})
        labels = {"app": SET}
        ports = [{"name": "mqtt", "containerPort": 1883}, {"name": "cluster", "containerPort": 7883}, {"name": "http", "containerPort": 8080}]
        template = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "sedge", "image": "sedge", "ports": ports}], "terminationGracePeriodSeconds": 30}}
        spec = {"serviceName": SET, "replicas": replicas, "podManagementPolicy": "Parallel", "selector": {"matchLabels": labels}, "template": template}
        self.call("POST", f"{apps}/namespaces/{NAMESPACE}/statefulsets", {"metadata": {"name": SET}, "spec": spec})
        self.call("POST", f"{rights}/namespaces/{NAMESPACE}/roles", {"metadata": {"name": "scale"}, "rules": ROLE})
        subject = {"kind": "User", "name": "scaler", "apiGroup": "rbac.authorization.k8s.io"}
        role = {"kind": "Role", "name": "scale", "apiGroup": "rbac.authorization.k8s.io"}
        self.call("POST", f"{rights}/namespaces/{NAMESPACE}/rolebindings", {"metadata": {"name": "scale"}, "subjects": [subject], "roleRef": role})

    def account(self) -> Path:
        """The folder of the service account, as a pod finds it."""
        folder = self.folder / "account"
        folder.mkdir(exist_ok=True)
        (folder / "token").write_text(SCALER)
        (folder / "namespace").write_text(NAMESPACE)
        (folder / "ca.crt").write_bytes((self.folder / "certs" / "apiserver.crt").read_bytes())
        return folder

    def replicas(self) -> int:
        """Replicas that the set is to have."""
        return int(self.call("GET", f"/apis/apps/v1/namespaces/{NAMESPACE}/statefulsets/{SET}/scale")["spec"].get("replicas", 0))

    def close(self) -> None:
        """Ends all, the last first."""
        for process in reversed(self.processes):
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


class Plane(Protocol):
    """A control plane, real or not, as far as the kubelet and the tests need it."""

    api: str

    def install(self, replicas: int) -> None:
        """Makes the set."""

    def call(self, method: str, path: str, body: Any = None, kind: str = "application/json") -> Any:
        """A request as the administrator."""

    def account(self) -> Path:
        """The folder of the service account, as a pod finds it."""

    def replicas(self) -> int:
        """Replicas that the set is to have."""

    def close(self) -> None:
        """Ends all."""


class Kubelet:
    """Starts a `sedge` process for each pod, at an address of its own of the loopback network, and tells of it in the pod's status."""

    def __init__(self, plane: Plane, binary: Path, folder: Path) -> None:
        self.plane, self.binary, self.folder = plane, binary, folder
        self.running: dict[str, tuple[str, subprocess.Popen[bytes]]] = {}
        self.addresses: dict[str, str] = {}
        self.ended: list[str] = []
        self.ready: dict[str, bool] = {}
        self.over = threading.Event()
        self.error: BaseException | None = None
        self.thread = threading.Thread(target=self.work, daemon=True)
        self.thread.start()

    def work(self) -> None:
        """Looks at pods until the end."""
        while not self.over.wait(0.1):
            try:
                pods = self.plane.call("GET", f"/api/v1/namespaces/{NAMESPACE}/pods")["items"]
                for pod in pods:
                    self.turn(pod)
                known = {pod["metadata"]["uid"] for pod in pods}
                for uid in [uid for uid in self.running if uid not in known]:
                    self.end(uid)
            except Refused:
                continue  # The pod has gone meanwhile.
            except urllib.error.HTTPError as error:
                if error.code not in GONE:
                    self.error = AssertionError(f"{error.url}: {error.read().decode()}")
            except (OSError, http.client.HTTPException):
                continue  # The API server is about to end, or busy.

    def turn(self, pod: dict[str, Any]) -> None:
        """One pod."""
        name, uid = pod["metadata"]["name"], pod["metadata"]["uid"]
        path = f"/api/v1/namespaces/{NAMESPACE}/pods/{name}"
        if "deletionTimestamp" in pod["metadata"]:
            self.end(uid)
            how = {"kind": "DeleteOptions", "apiVersion": "v1", "gracePeriodSeconds": 0, "preconditions": {"uid": uid}}
            self.plane.call("DELETE", path, how)
            return
        if not pod["spec"].get("nodeName"):
            target = {"apiVersion": "v1", "kind": "Node", "name": "local"}
            self.plane.call("POST", f"{path}/binding", {"metadata": {"name": name, "uid": uid}, "target": target})
            return
        if uid not in self.running:
            self.start(name, uid)
        process = self.running[uid][1]
        if process.poll() is not None:
            self.start(name, uid)  # As a kubelet does with restartPolicy Always.
        ready = self.is_ready(uid)
        if self.ready.get(uid) != ready:
            conditions = [{"type": "Ready", "status": "True" if ready else "False"}]
            status = {"phase": "Running", "podIP": self.addresses[uid], "conditions": conditions}
            self.plane.call("PATCH", f"{path}/status", {"status": status}, "application/merge-patch+json")
            self.ready[uid] = ready

    def start(self, name: str, uid: str) -> None:
        """The process of a pod."""
        if uid not in self.addresses:
            self.addresses[uid] = f"127.77.{os.getpid() % 250}.{len(self.addresses) + 2}"
        address = self.addresses[uid]
        seeds = ",".join(f"{other}:7883" for other in self.addresses.values() if other != address)
        env = os.environ | {
            "SEDGE_NODE__NAME": name, "SEDGE_CLUSTER__KEY": KEY, "SEDGE_CLUSTER__BIND": address, "SEDGE_CLUSTER__SEEDS": seeds,
            "SEDGE_HTTP__ENABLED": "true", "SEDGE_HTTP__BIND": address, "SEDGE_HTTP__TOKEN": TOKEN, "SEDGE_AUTH__ANONYMOUS": "always",
        }
        data = self.folder / uid
        log = (self.folder / f"{name}.log").open("ab")
        command = [self.binary, "serve", "--bind", address, "--port", "1883", "--cluster-port", "7883", "--http-port", "8080", "--data-dir", data]
        self.running[uid] = (name, subprocess.Popen(command, env=env, stdout=log, stderr=log))

    def is_ready(self, uid: str) -> bool:
        """The readiness probe."""
        try:
            with urllib.request.urlopen(f"http://{self.addresses[uid]}:8080/health/ready", timeout=2) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False

    def end(self, uid: str) -> None:
        """Ends the process of a pod."""
        if uid in self.running:
            name, process = self.running.pop(uid)
            self.ended.append(name)
            process.terminate()
            process.wait(30)

    def kill(self, name: str) -> None:
        """The process of a pod dies."""
        for known, process in self.running.values():
            if known == name:
                process.kill()

    def close(self) -> None:
        """Ends all."""
        self.over.set()
        self.thread.join(30)
        for uid in list(self.running):
            self.end(uid)
        assert self.error is None, self.error
