"""Results as pages: one file each, which a browser opens without a network.

A page is a title and blocks: plain values of a kind (`blocks`), which scripts built from ``web/`` draw. What a run did
is one block, too, packed small enough for a million events (`tracks`). Blocks know nothing of where they are shown, so
notebooks and other programs may take them as well.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from armillary.base import lazy

if TYPE_CHECKING:
    from armillary.report.page.blocks import Block
    from armillary.report.page.run import run_blocks
    from armillary.report.page.shown import Shown
    from armillary.report.page.write import page_text, write_page

__all__ = ["Block", "Shown", "page_text", "run_blocks", "write_page"]
__getattr__ = lazy(
    __name__,
    {
        ".blocks": ("Block",),
        ".run": ("run_blocks",),
        ".shown": ("Shown",),
        ".write": ("page_text", "write_page"),
    },
)
