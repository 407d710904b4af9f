"""`armillary trace privacy`: measure what obfuscation hides from attacks."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import click

from armillary.base.terminal import unfiltered
from armillary.cli.output_file import OUTPUT, PICTURE
from armillary.cli.outputs import show_table
from armillary.cli.trace import SUBCOMMANDS

_HELP = f"""{SUBCOMMANDS["privacy"]}

Training runs of 64 ranks are drawn at random, obfuscated at several strengths, and attacked by rules and by classifiers
that were trained on other runs obfuscated with the same tool. Printed is the share of runs in which an attack is right,
beside the share of the most frequent value (prior), and what simulated times give away alone.

Runs of public models are obfuscated, too, and named by an attack that knows a list of them and compares the total of
gradients that replicas reduce with their numbers of parameters; its shares have 95 % intervals.
"""
_PATH = click.Path(path_type=Path)


@click.command(help=_HELP)
@click.option(
    "--runs", type=click.IntRange(20), default=200, show_default=True, help="How many runs are drawn."
)
@click.option(
    "--seed", type=int, default=0, show_default=True, help="What the runs and all keys follow from."
)
@click.option(
    "--public",
    type=click.IntRange(10),
    default=100,
    show_default=True,
    help="How many runs of public models.",
)
@click.option("--workers", type=click.IntRange(1), default=1, show_default=True, help="Processes.")
@click.option("--picture", type=PICTURE, metavar="FILE", help="Draw attack over error (.png, .svg or .pdf).")
@click.option("--json", "report", type=OUTPUT, metavar="FILE", help="Write everything as JSON.")
def command(
    runs: int, seed: int, public: int, workers: int, picture: Path | None, report: Path | None
) -> None:
    """Evaluate, print and write."""
    from armillary.base.files import write_text
    from armillary.lab.privacy.evaluate import SETTINGS, evaluate
    from armillary.lab.privacy.public import name_public
    from armillary.lab.privacy.show import evaluation_tables, not_hidden, public_table, trade_off_picture

    hidden = not sys.stderr.isatty()
    with click.progressbar(
        length=runs + public, label="obfuscating", file=unfiltered(sys.stderr), hidden=hidden
    ) as bar:
        found = evaluate(runs, seed, workers=workers, progress=lambda done: bar.update(done - bar.pos))
        named = name_public(
            public, seed, SETTINGS, workers, progress=lambda done: bar.update(runs + done - bar.pos)
        )
    for table in (*evaluation_tables(found), public_table(named)):
        show_table(table)
    click.echo(not_hidden(named))
    if picture:
        trade_off_picture(found, picture, named)
        click.echo(f"wrote {picture}", err=True)
    if report:
        document = {**found.document(), "public": [each.document() for each in named]}
        write_text(report, json.dumps(document, indent=1) + "\n")
        click.echo(f"wrote {report}", err=True)
