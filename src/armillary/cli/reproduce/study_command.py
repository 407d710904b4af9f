"""The command of a reproduction, made of what it assumes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from armillary.base.errors import InputError
from armillary.cli.output_file import PICTURE, PLOTTED_PAGE
from armillary.cli.outputs import show_table, working
from armillary.cli.reproduce import SUBCOMMANDS
from armillary.evidence.reproduce.assumptions import about, flag, read, variations
from armillary.evidence.reproduce.outcome import Grid, Outcome, changed

if TYPE_CHECKING:
    from collections.abc import Iterator


def study_command(
    name: str, assumptions: type[Any], run: Callable[[Any], Outcome], more: str
) -> click.Command:
    """Return the command: an option for each assumption, and the files to write.

    Args:
        name: Of the command.
        assumptions: A dataclass whose fields are `assumed`.
        run: What it does.
        more: The rest of the help, after the one line of `SUBCOMMANDS`.
    """

    def call(plot: Path | None, page: Path | None, sweep: bool, **texts: str) -> None:
        from armillary.evidence.reproduce.page import picture, write_page

        chosen = read(assumptions, texts)
        with working(f"reproducing {name}"):
            outcome = run(chosen)
        click.echo(outcome.title)
        for grid in outcome.grids:
            click.echo()
            show_table(grid.table())
        click.echo()
        show_table(outcome.verdicts())
        swept = None
        if sweep:
            swept = _swept(chosen, run, outcome)
            click.echo()
            show_table(swept.table())
        if plot:
            picture(outcome, plot)
            click.echo(f"wrote {plot}", err=True)
        if page:
            write_page(name, outcome, assumptions, page, texts=texts, sweep=swept)
            click.echo(f"wrote {page}", err=True)

    return click.Command(
        name, callback=call, params=list(_options(assumptions)), help=f"{SUBCOMMANDS[name]}\n\n{more}"
    )


def _options(assumptions: type[Any]) -> Iterator[click.Option]:
    for name, known in about(assumptions).items():
        kind = click.Choice(known.choices) if known.choices else click.STRING
        yield click.Option(
            [flag(name), name], type=kind, default=known.text, show_default=True, help=known.why
        )
    yield click.Option(["--plot"], type=PICTURE, metavar="FILE", help="Draw the figure (.png, .svg or .pdf).")
    yield click.Option(
        ["--html", "page"], type=PLOTTED_PAGE, metavar="FILE", help="Write one page with everything."
    )
    yield click.Option(
        ["--sweep"], is_flag=True, help="Vary each assumption, one at a time: which verdicts change?"
    )


def _swept(chosen: Any, run: Callable[[Any], Outcome], base: Outcome) -> Grid:
    rows = []
    for name, text, other in variations(chosen):
        with working(f"{flag(name)} {text}"):
            try:
                verdicts = changed(base, run(other))
            except InputError as error:
                verdicts = f"cannot be: {error}"
        rows.append((f"{flag(name)} {text}", verdicts))
    return Grid(
        "Which verdicts change (by the number of the claim)", ("with", "changed verdicts"), tuple(rows)
    )
