"""Pages of blocks: as a text, and as a file."""

from __future__ import annotations

import os
from collections.abc import Sequence
from importlib.resources import files

from armillary.base.files import write_text
from armillary.base.page import html_page
from armillary.report.page.blocks import Block


def page_text(title: str, blocks: Sequence[Block]) -> str:
    """Return a page of blocks, with everything it needs."""
    return "".join(_pieces(title, blocks))


def write_page(title: str, blocks: Sequence[Block], path: str | os.PathLike[str]) -> None:
    """Write a page of blocks, complete or not at all.

    Raises:
        InputError: the file cannot be written.
    """
    write_text(path, *_pieces(title, blocks))


def _pieces(title: str, blocks: Sequence[Block]) -> list[str]:
    scripts = files("armillary") / "web"

    def part(name: str) -> str:
        return (scripts / name).read_text(encoding="utf-8")

    body = [
        '<main id="page"></main>\n<noscript>This page is drawn by its own scripts, which are off.</noscript>\n'
    ]
    return html_page(
        title, part("report.css"), body, data={"title": title, "blocks": list(blocks)},
        scripts=[part("charts.js"), part("report.js")],
    )  # fmt: skip
