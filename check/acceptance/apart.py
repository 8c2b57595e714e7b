"""Nodes with addresses of their own, each in a network namespace."""

from __future__ import annotations

import os
import subprocess
from typing import Any

from cluster import get

MQTT, HTTP = 1883, 8080


def can_make_namespaces() -> bool:
    """Whether this user may."""
    if os.geteuid() != 0:
        return False
    # Test processes that run at the same time ask at the same time.
    name = f"sedgeprobe{os.getpid()}"
    made = subprocess.run(["ip", "netns", "add", name], capture_output=True, check=False).returncode == 0
    subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False)
    return made


class Apart:
    """Answers of nodes that have default ports, each at an address of its own."""

    def address(self, node: int) -> str:
        """The address at which this process reaches the node."""
        raise NotImplementedError

    def api(self, node: int, path: str) -> Any:
        """An answer of the node's status API."""
        return get(f"http://{self.address(node)}:{HTTP}/api/v1/{path}")

    def ready(self, node: int) -> bool:
        """Whether the node says that it is ready."""
        try:
            get(f"http://{self.address(node)}:{HTTP}/health/ready", 2)
        except OSError:
            return False
        return True

    def members(self, node: int) -> int:
        """How many members the node knows."""
        return len(self.api(node, "cluster")["members"])

    def up(self, node: int) -> int:
        """How many links of the node are up."""
        return sum(1 for member in self.api(node, "cluster")["members"] if member["link"])

    def carriers(self, node: int) -> list[str]:
        """The nodes that carry links of the node."""
        links = [member["link"] for member in self.api(node, "cluster")["members"] if member["link"]]
        return [link["via"] for link in links if "via" in link]
