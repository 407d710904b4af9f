"""`armillary run --samples`: what it excludes, and how its result is shown."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from armillary.cli.command import option
from armillary.cli.options import seed_option, workers_option
from armillary.cli.outputs import Outputs, say, show_table, write_json

if TYPE_CHECKING:
    from armillary.explore.samples.result import Samples

_HEADING = "Variation"


def sample_options(function: Any) -> Any:
    """Add ``--samples --seed --workers``."""
    add_samples = option(
        "--samples", type=click.IntRange(1), metavar="N", heading=_HEADING,
        help="Draw so many machines from the variation of the machine: p50, p90 and p99 of the step.",
    )  # fmt: skip
    add_seed = seed_option("Random seed of --samples.  [default: 0]", heading=_HEADING)
    add_workers = workers_option("Processes of --samples.  [default: 1]", default=None, heading=_HEADING)
    return add_samples(add_seed(add_workers(function)))


def check_sample_options(
    samples: int | None, seed: int | None, workers: int | None, outputs: Outputs, others: dict[str, object]
) -> None:
    """Refuse options that do not go with ``--samples``, and those that need it.

    Raises:
        UsageError: names them.
    """
    if samples is None:
        for name, given in {"seed": seed, "workers": workers}.items():
            if given is not None:
                raise click.UsageError(f"--{name} needs --samples")
        return
    of_one = {"timeline": outputs.timeline, "links": outputs.links, "save": outputs.save}
    for name, value in {**others, **of_one}.items():
        if value:
            raise click.UsageError(f"--samples and --{name} exclude each other")


def present_samples(found: Samples, outputs: Outputs) -> None:
    """Print the result, and write and name every file that was asked for."""
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
