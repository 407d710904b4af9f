"""A command whose help has its options under headings, and examples below them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import click

from armillary.cli.output_file import OutputFile, OutputFolder, OutputPrefix

LONG = 8
"""Options up to which one list is read at a glance: with more they stand under headings."""
FILES = "Files to write"


class Option(click.Option):
    """An option that stands under a heading of the help page."""

    def __init__(self, *args: Any, heading: str = "", **extra: Any) -> None:
        """Take the heading; without one, a file to write stands under `FILES` and all else under Options."""
        # A type of file says the heading, so that commands need not.
        super().__init__(*args, **extra)
        if not heading and isinstance(self.type, (OutputFile, OutputFolder, OutputPrefix)):
            heading = FILES
        self.heading = heading


def option(*names: str, **extra: Any) -> Callable[[Any], Any]:
    """Return the decorator that adds an `Option`."""
    return click.option(*names, cls=Option, **extra)


class Command(click.Command):
    """A command with examples, and of a `DefaultGroup` with the commands beside it."""

    def __init__(
        self, *args: Any, examples: Sequence[str] = (), beside: Mapping[str, str] | None = None, **extra: Any
    ) -> None:
        """Take the examples as they are typed, and one-line helps of the commands that follow this one's name."""
        super().__init__(*args, **extra)
        self.examples = tuple(examples)
        self.beside = beside or {}

    def headed(self, ctx: click.Context) -> dict[str, list[click.Parameter]]:
        """Return the options by their headings; all under Options where they are few."""
        options = [param for param in self.get_params(ctx) if isinstance(param, click.Option)]
        # Hidden options do not count, as they are not shown.
        if sum(not option.hidden for option in options) <= LONG + 1:  # --help is one
            return {"Options": list(options)}
        found: dict[str, list[click.Parameter]] = {}
        # sorted is stable: within a heading options stay in the order of declaration.
        for each in sorted(options, key=lambda each: getattr(each, "heading", "") in ("", FILES)):
            found.setdefault(getattr(each, "heading", "") or "Options", []).append(each)
        if "Options" in found:  # last, as --help is
            found["Options"] = found.pop("Options")
        return found

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write each heading with its options."""
        for heading, options in self.headed(ctx).items():
            # Hidden options have no record.
            rows = [record for each in options if (record := each.get_help_record(ctx))]
            if rows:
                with formatter.section(heading):
                    formatter.write_dl(rows)
        if self.beside:
            with formatter.section("Commands"):
                formatter.write_dl(list(self.beside.items()))

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the examples as they are typed: no line is wrapped."""
        if self.examples:
            with formatter.section("Examples"):
                for example in self.examples:
                    # formatter.write_text would wrap lines, and a wrapped command cannot be pasted.
                    formatter.write(f"{'':{formatter.current_indent}}{example}\n")
