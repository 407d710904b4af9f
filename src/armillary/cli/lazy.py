"""A group of commands, one module for each, imported only when that command is called."""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping
from typing import Any

import click
from click.shell_completion import CompletionItem

from armillary.base.hints import did_you_mean, nearest


class LazyGroup(click.Group):
    """Finds command ``x-y`` as ``command`` of the module ``x_y`` of a package."""

    elsewhere: Mapping[str, tuple[str, ...]] = {}
    """Other names -> the commands that they mean."""

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
        # Only names of the table are imported: get_command is asked for every word while completing.
        return self.load(cmd_name) if cmd_name in self.table else None

    def load(self, name: str) -> click.Command:
        """Return the command of a module of the package."""
        command: click.Command = importlib.import_module(f"{self.modules}.{name.replace('-', '_')}").command
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command that `args` begin with; the error for an unknown one names the nearest."""
        # While completing, an unknown word is no error.
        if args[0] not in self.table and not ctx.resilient_parsing:
            ctx.fail(f"no command '{args[0]}'{self._hint(args[0])}")
        return super().resolve_command(ctx, args)

    def _hint(self, word: str) -> str:
        """Return the nearest command, or those that are called so below this group."""
        plain = word.casefold()
        if plain in self.elsewhere:
            return did_you_mean(self.elsewhere[plain])
        # A command of the same name in another group is the better guess than one that is spelled alike.
        below = [place for place in self.places() if place.endswith(f" {plain}")]
        return did_you_mean(below[:3]) or nearest(word, self.table, {})

    def places(self) -> Iterator[str]:
        """Yield every command below this group as it is called, e.g. ``trace convert``."""
        for name in self.table:
            yield name
            # Here groups are imported: only errors come this way.
            command = self.load(name)
            if isinstance(command, LazyGroup):
                yield from (f"{name} {place}" for place in command.places())

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list of commands from the table, importing none."""
        with formatter.section("Commands"):
            formatter.write_dl(list(self.table.items()))


class DefaultGroup(LazyGroup):
    """A group that has a command of its own: what follows its name is a command of it, or that command's arguments.

    ``armillary sweep results STORE`` is the command ``results``, and ``armillary sweep FILE`` the default one, which a
    file called ``results`` reaches as ``./results``.
    """

    def __init__(self, *args: Any, default: str, **extra: Any) -> None:
        """Take the module of the default command."""
        super().__init__(*args, **extra)
        self._default = default

    @property
    def default(self) -> click.Command:
        """The command that the group is when no other is named."""
        return self.load(self._default)

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any
    ) -> click.Context:
        """Return the context of the default command where `args` begin with none of the table."""
        # The shell completes the group itself: without arguments it must see the commands and the default's
        # options.
        completing = bool(extra.get("resilient_parsing")) and not args
        if completing or (args and args[0] in self.table):
            return super().make_context(info_name, args, parent, **extra)
        return self.default.make_context(info_name, args, parent, **extra)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Complete commands, and what the default command takes first."""
        default = self.default
        if incomplete.startswith("-"):
            return default.shell_complete(ctx, incomplete)
        # The first argument only: what follows depends on it.
        first = [param for param in default.params if isinstance(param, click.Argument)][:1]
        items = [item for param in first for item in param.shell_complete(ctx, incomplete)]
        return [*items, *super().shell_complete(ctx, incomplete)]
