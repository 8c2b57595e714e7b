#!/usr/bin/env python3
"""A preprocessor of mdbook: links that leave the folder of the documents lead to the repository instead."""

from __future__ import annotations

import json
import posixpath
import re
import sys
from typing import Any

REPOSITORY = "https://sedge.invalid/sedge/blob/main"
LINK = re.compile(r"(\]\()([^)#\s]+)([^)\s]*\))")


def rewritten(text: str, page: str) -> str:
    """The text of `page` (a path within the folder) with such links replaced."""

    def replace(match: re.Match[str]) -> str:
        target = match.group(2)
        if "://" in target or target.startswith(("/", "mailto:")):
            return match.group(0)
        path = posixpath.normpath(posixpath.join("docs", posixpath.dirname(page), target))
        if path.startswith("docs/") and path.endswith((".md", ".png", ".svg")):
            # mdbook makes an index of each README, and leaves links to it alone.
            return match.group(0).replace("README.md", "index.md")
        return f"{match.group(1)}{REPOSITORY}/{path}{match.group(3)}"

    return LINK.sub(replace, text)


def walk(items: list[Any]) -> None:
    """Goes through all chapters."""
    for item in items:
        if isinstance(item, dict) and "Chapter" in item:
            chapter = item["Chapter"]
            if chapter.get("path"):
                chapter["content"] = rewritten(chapter["content"], chapter["path"])
            walk(chapter["sub_items"])


def main() -> None:
    """mdbook asks first whether the renderer is supported, then hands the book over."""
    if sys.argv[1:2] == ["supports"]:
        return
    _context, book = json.load(sys.stdin)
    walk(book.get("items", book.get("sections", [])))
    json.dump(book, sys.stdout)


if __name__ == "__main__":
    main()
