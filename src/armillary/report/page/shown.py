"""What results have in common: each shows itself as a page, in a notebook as in a file."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod

from armillary.base.page import check_page, html_text
from armillary.report.page.blocks import Block
from armillary.report.page.write import page_text, write_page

HEIGHT = 640
"""Pixels of a page in a notebook."""


class Shown(ABC):
    """A result that can be shown."""

    @property
    @abstractmethod
    def title(self) -> str:
        """What it is the result of."""

    @abstractmethod
    def blocks(self, *, changes: bool = True) -> list[Block]:
        """Return the blocks of its page; `changes` adds what other choices would give, which takes simulations."""

    def to_html(self, path: str | os.PathLike[str] | None = None) -> str | None:
        """Write one page that needs no network, and return None; without a path return its text.

        Raises:
            InputError: the suffix is not .html, or the file cannot be written.
        """
        if path is None:
            return page_text(self.title, self.blocks())
        check_page(path)
        write_page(self.title, self.blocks(), path)
        return None

    def _repr_html_(self) -> str:
        """Return the page for a notebook, in a frame of its own: neither's style or scripts reach the other."""
        page = html_text(page_text(self.title, self.blocks(changes=False)))
        style = f"width: 100%; height: {HEIGHT}px; border: 0"
        return f'<iframe sandbox="allow-scripts" style="{style}" srcdoc="{page}"></iframe>'
