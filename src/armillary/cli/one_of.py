"""A value that is a name of an extension point: built in, or of another package."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

import click
from click.shell_completion import CompletionItem

if TYPE_CHECKING:
    from armillary.base.extension import ExtensionPoint


class OneOf(click.ParamType):  # type: ignore[type-arg]  # generic in newer versions of click only
    """One of the names of an extension point; looks for other packages only where it has to list them all."""

    name = "name"

    def __init__(self, where: str) -> None:
        """Take "module:attribute" of the point: its module is imported when it is asked for."""
        # A text, not the object: help and completion must not import the engine.
        self.where = where

    @property
    def point(self) -> ExtensionPoint:
        """The extension point."""
        module, _, attribute = self.where.partition(":")
        found: ExtensionPoint = getattr(importlib.import_module(module), attribute)
        return found

    def get_metavar(self, param: click.Parameter, ctx: click.Context | None = None) -> str:
        """Return the names as `click.Choice` shows them."""
        return f"[{'|'.join(self.point)}]"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Refuse a name that is none."""
        from armillary.platform.limits import Choice

        if problem := Choice(self.point)(value):
            self.fail(problem, param, ctx)
        return value

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        """Return the names that begin so."""
        return [CompletionItem(name) for name in self.point if name.startswith(incomplete)]
