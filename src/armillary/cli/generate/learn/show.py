"""`armillary generate learn show`: what a model was trained on, and what it found."""

from __future__ import annotations

from pathlib import Path

import click

from armillary.cli.command import Command
from armillary.cli.generate.learn import SUBCOMMANDS
from armillary.cli.outputs import show_table


@click.command(
    cls=Command,
    help=SUBCOMMANDS["show"],
    examples=(
        "armillary generate learn show model.npz",
        "armillary generate learn show model.npz --role mlp.residual.add",
    ),
)
@click.argument("path", metavar="MODEL.npz", type=click.Path(path_type=Path))
@click.option(
    "--role", help="Print the sizes of pieces with this role as expressions, e.g. mlp.residual.add."
)
def command(path: Path, role: str | None) -> None:
    """Print a model."""
    from armillary.cli.generate.learn.describe_model import model_tables, role_table
    from armillary.lab.learned.neural.model_file import open_sampler

    model = open_sampler(path).model
    if role is not None:
        show_table(role_table(model, role))
        return
    for number, table in enumerate(model_tables(model)):
        if number:
            click.echo()
        show_table(table)
