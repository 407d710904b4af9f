"""A group of commands, one module for each, imported only when that command is called."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any

import click

from armillary.base.hints import Synonyms, did_you_mean, nearest

_SYNONYMS: Synonyms = {
    "simulate": (("run", ""),),
    "sim": (("run", ""),),
    "start": (("run", ""),),
    "view": (("show", ""),),
    "summary": (("show", ""),),
    "why": (("explain", ""),),
    "optimise": (("search", ""),),
    "optimize": (("search", ""),),
    "plan": (("search", ""),),
    "tune": (("search", ""),),
    "energy": (("cost", ""),),
    "price": (("cost", ""),),
    "capture": (("collect", ""),),
    "profile": (("collect", ""),),
    "record": (("collect", ""),),
    "machine": (("platform", ""),),
    "workload": (("generate", ""),),
}
"""What others call commands."""


class LazyGroup(click.Group):
    """Finds command ``x-y`` as ``command`` of the module ``x_y`` of a package."""

    def __init__(self, *args: Any, modules: str, table: Mapping[str, str], **extra: Any) -> None:
        """Take the package that holds the modules, and the one-line help of each command by its name."""
        super().__init__(*args, **extra)
        self.modules = modules
        self.table = table

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the command names in the order of the help page."""
        return list(self.table)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import the module of `cmd_name` and return its command; None for an unknown name."""
        if cmd_name not in self.table:
            return None
        module = importlib.import_module(f"{self.modules}.{cmd_name.replace('-', '_')}")
        command: click.Command = module.command
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command that `args` begin with; the error for an unknown one names the nearest."""
        if args[0] not in self.table:
            ctx.fail(f"no command '{args[0]}'{self._hint(ctx, args[0])}")
        return super().resolve_command(ctx, args)

    def _hint(self, ctx: click.Context, word: str) -> str:
        """Return the nearest command, or those of a group that are called so."""
        groups = {name: self.get_command(ctx, name) for name in self.table}
        inside = [
            f"{name} {word.casefold()}"
            for name, group in groups.items()
            if isinstance(group, LazyGroup) and word.casefold() in group.table
        ]
        return did_you_mean(inside[:3]) or nearest(word, self.table, _SYNONYMS)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list of commands from the table, importing none."""
        with formatter.section("Commands"):
            formatter.write_dl(list(self.table.items()))
