#!/usr/bin/env python3
"""Renders the Helm chart with twelve sets of values and validates every resource strictly against Kubernetes 1.25 to 1.37.

Needs helm and the Python package kubernetes-validate; `./test helm` installs both.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

CHART = Path(__file__).parent / "helm/sedge"
VERSIONS = [f"1.{minor}" for minor in range(25, 38)]
KEY = "cluster.key=0123456789abcdef"
# The resource of another project, for which there is no schema.
FOREIGN = "ServiceMonitor"
GOOD: list[list[str]] = [
    [KEY],
    ["cluster.existingSecret=mine"],
    [KEY, "replicas=1"],
    [KEY, "replicas=5", "cluster.copies=3"],
    [KEY, "persistence.enabled=false"],
    [KEY, "persistence.storageClass=fast", "persistence.size=10Gi", "persistence.durability=fsync"],
    [KEY, "service.type=LoadBalancer", "service.annotations.a=b"],
    [KEY, "networkPolicy.enabled=true"],
    [KEY, "networkPolicy.enabled=true", "networkPolicy.clients[0].ipBlock.cidr=10.0.0.0/8"],
    [KEY, "serviceMonitor.enabled=true", "config.SEDGE_LOG__FORMAT=json"],
    [KEY, "nodeSelector.disk=ssd", "tolerations[0].key=edge", "tolerations[0].operator=Exists"],
    [KEY, "affinity.podAntiAffinity.requiredDuringSchedulingIgnoredDuringExecution[0].topologyKey=zone", "podDisruptionBudget.enabled=false"],
]
BAD = {
    "cluster.key=short": "cluster.key",
    "replicas=0": "replicas",
    "cluster.overlay=star": "overlay",
    "replcas=3": "replcas",
}


def render(values: list[str], version: str) -> subprocess.CompletedProcess[str]:
    """What helm makes of the values."""
    command = ["helm", "template", "site", str(CHART), "--kube-version", f"{version}.0"]
    for value in values:
        command += ["--set", value]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def main() -> int:
    """Renders and validates everything; says how much."""
    import kubernetes_validate
    import yaml

    passed, failed = 0, []
    for values in GOOD:
        for version in VERSIONS:
            done = render(values, version)
            if done.returncode != 0:
                failed.append(f"{values} {version}: {done.stderr}")
                continue
            for resource in yaml.safe_load_all(done.stdout):
                if resource is None or resource["kind"] == FOREIGN:
                    continue
                try:
                    kubernetes_validate.validate(resource, version, strict=True)
                    passed += 1
                except kubernetes_validate.ValidationError as error:
                    failed.append(f"{values} {version} {resource['kind']}: {error}")
    for value, named in BAD.items():
        values = [value] if value.startswith("cluster.key") else [KEY, value]
        done = render(values, VERSIONS[-1])
        if done.returncode == 0 or named not in done.stderr:
            failed.append(f"{value} is not refused by name: {done.stderr}")
        else:
            passed += 1
    print("\n".join(failed))
    print(f"helm: {passed} passed, {len(failed)} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
