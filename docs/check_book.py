#!/usr/bin/env python3
"""Follows every link of the book that mdbook has built, and looks for every page in its search index.

Usage: docs/check_book.py DIRECTORY
"""

from __future__ import annotations

import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit


class Page(HTMLParser):
    """Where a page points, and what can be pointed at in it."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.ids: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Each element."""
        for name, value in attrs:
            if name == "id" and value:
                self.ids.add(value)
            if value and ((name == "href" and tag in ("a", "link")) or (name == "src" and tag in ("img", "script"))):
                self.links.append(value)


def main() -> int:
    """Says what is wrong, and ends with a line that counts."""
    book = Path(sys.argv[1])
    pages = {path: Page(path.read_text()) for path in book.rglob("*.html")}
    wrong, followed = [], 0
    for path, page in pages.items():
        for link in page.links:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc or path.name in ("print.html", "404.html", "toc.html"):
                continue
            followed += 1
            target = path if not parts.path else (path.parent / unquote(parts.path)).resolve()
            if not target.exists():
                wrong.append(f"{path.relative_to(book)}: {link}: no such file")
            elif parts.fragment and target in pages and unquote(parts.fragment) not in pages[target].ids:
                wrong.append(f"{path.relative_to(book)}: {link}: no such part")
    index = "".join(path.read_text() for path in book.glob("searchindex*.js"))
    for path in pages:
        if path.name not in ("print.html", "404.html", "toc.html", "index.html") and str(path.relative_to(book)) not in index:
            wrong.append(f"{path.relative_to(book)}: the search does not know it")
    print("\n".join(wrong))
    print(f"{len(pages)} pages, {followed} links")
    print(f"book: {followed - len(wrong)} passed, {len(wrong)} failed")
    return 1 if wrong or followed < 500 else 0


if __name__ == "__main__":
    sys.exit(main())
