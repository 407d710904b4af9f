"""Pages of blocks: as a text, and as a file."""

from __future__ import annotations

import os
from collections.abc import Sequence

from armillary.base.files import write_text
from armillary.base.page import drawn_page
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
    return drawn_page("report", title, {"title": title, "blocks": list(blocks)})
