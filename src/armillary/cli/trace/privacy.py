"""`armillary trace privacy`: measure what obfuscation hides from attacks."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from armillary.base.text import unfiltered
from armillary.cli.command import Command, option
from armillary.cli.options import json_option, plot_option, seed_option, workers_option
from armillary.cli.outputs import say, show_table, write_json
from armillary.cli.trace import SUBCOMMANDS

_HELP = f"""{SUBCOMMANDS["privacy"]}

Training runs of 64 ranks are drawn at random, obfuscated at several strengths, and attacked by rules and by
classifiers. The classifiers were trained on other runs obfuscated with the same tool. The output is the share of runs
in which an attack is right, next to the share of the most frequent value (prior), and what simulated times alone
reveal.

Runs of public models are obfuscated, too. An attack with a list of these models names them: it compares the total
gradients that replicas reduce with the models' parameter counts. Its shares have 95 % intervals.
"""


@click.command(
    cls=Command,
    help=_HELP,
    examples=(
        "armillary trace privacy --runs 50 --public 10",
        "armillary trace privacy --runs 450 --workers 2 --plot privacy.png --json privacy.json",
    ),
)
@option(
    "--runs", type=click.IntRange(20), default=200, show_default=True, help="Number of training runs to draw."
)
@seed_option("Random seed for the runs and all keys.", default=0, show_default=True)
@option(
    "--public",
    type=click.IntRange(10),
    default=100,
    show_default=True,
    help="Number of runs of public models.",
)
@workers_option()
@plot_option("attack success over error")
@json_option("Write everything as JSON.")
def command(
    runs: int, seed: int, public: int, workers: int, plot: Path | None, json_file: Path | None
) -> None:
    """Evaluate, print and write."""
    from armillary.base.counts import MOST_DRAWS, check_count
    from armillary.lab.privacy.evaluate import SETTINGS, evaluate
    from armillary.lab.privacy.public import name_public
    from armillary.lab.privacy.show import evaluation_tables, not_hidden, public_table, trade_off_picture

    check_count(runs + public, MOST_DRAWS, "--runs and --public: training runs", "fewer runs")
    # In a pipe the bar is hidden.
    hidden = not sys.stderr.isatty()
    with click.progressbar(
        length=runs + public, label="obfuscating", file=unfiltered(sys.stderr), hidden=hidden
    ) as bar:
        found = evaluate(runs, seed, workers=workers, progress=lambda done: bar.update(done - bar.pos))
        named = name_public(
            # One bar over both parts of the work.
            public,
            seed,
            SETTINGS,
            workers,
            progress=lambda done: bar.update(runs + done - bar.pos),
        )
    for table in (*evaluation_tables(found), public_table(named)):
        show_table(table)
    click.echo(not_hidden(named))
    if plot:
        trade_off_picture(found, plot, named)
        say(f"wrote {plot}", err=True)
    write_json(json_file, {**found.document(), "public": [each.document() for each in named]})
