"""`armillary run --samples`: the options that it excludes, and the presentation of its result."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from armillary.cli.outputs import Outputs, say, show_table, write_json

if TYPE_CHECKING:
    from armillary.explore.samples.result import Samples


def check_sample_options(outputs: Outputs, others: dict[str, object]) -> None:
    """Refuse options that exclude ``--samples``.

    Raises:
        UsageError: names them.
    """
    of_one = {
        "timeline": outputs.timeline,
        "links": outputs.links,
        "save": outputs.save,
        "brief": outputs.brief,
    }
    for name, value in {**others, **of_one}.items():
        if value:
            raise click.UsageError(f"--samples and --{name} exclude each other")


def present_samples(found: Samples, outputs: Outputs) -> None:
    """Print the result, and write and name every requested file."""
    from armillary.explore.samples.show import cause_table, headline, notes, picture, quantile_table
    from armillary.report.summary import first_lines

    for line in first_lines(found.timeline):
        click.echo(line)
    click.echo(headline(found))
    show_table(quantile_table(found))
    if found.causes:
        click.echo()
        show_table(cause_table(found))
    for line in notes(found):
        say(line)
    write_json(outputs.json, found.describe())
    if outputs.plot is not None:
        picture(found, outputs.plot)
        say(f"wrote {outputs.plot}", err=True)
