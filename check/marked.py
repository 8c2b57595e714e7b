"""Tables that a tool measures and puts into a document, between a pair of marks of its own."""

from __future__ import annotations

import os
import platform
import socket
import sys
from pathlib import Path


def marks(tool: str) -> tuple[str, str]:
    """The lines before and behind the table of a tool."""
    return f"<!-- {tool} begins -->", f"<!-- {tool} ends -->"


def put(page: Path, tool: str, table: str) -> None:
    """Replaces the lines between the marks of `tool` in `page`."""
    begin, end = marks(tool)
    text = page.read_text()
    if text.count(begin) != 1 or text.count(end) != 1:
        sys.exit(f"{page}: one {begin} and one {end} are expected")
    before, rest = text.split(begin)
    page.write_text(f"{before}{begin}\n{table}\n{end}{rest.split(end)[1]}")


def system() -> str:
    """This machine in a few words."""
    return f"{os.cpu_count()} cores, {platform.system()} {'.'.join(platform.release().split('.')[:2])}, {platform.machine()}"


def free_ports(count: int, above: tuple[int, ...] = (0,)) -> int:
    """A first port with so many in a row that are free, and as many at each of these distances."""
    for first in range(22_000, 30_000, count):
        sockets: list[socket.socket] = []
        try:
            for port in (first + distance + index for distance in above for index in range(count)):
                sockets.append(socket.socket())
                sockets[-1].bind(("127.0.0.1", port))
            return first
        except OSError:
            continue
        finally:
            for one in sockets:
                one.close()
    sys.exit("no ports are free")
