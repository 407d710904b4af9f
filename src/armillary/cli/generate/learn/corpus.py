"""`armillary generate learn corpus`: traces as tokens with their conditions."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from armillary.base.errors import InputError
from armillary.base.text import unfiltered
from armillary.cli.command import Command
from armillary.cli.generate.learn import SUBCOMMANDS
from armillary.cli.options import json_option, workers_option
from armillary.cli.outputs import say, show_table, write_json

_HELP = f"""{SUBCOMMANDS["corpus"]}

CORPUS is a folder. Its existing contents are kept, so run the same command again to resume. TRACES is a prefix of files
TRACES.<rank>.et; PLAN.yaml says which traces to generate:

\b
  count: 1000                 # traces
  seed: 0
  nodes: 50000                # at most, per trace
  choices:                    # one value of each is drawn
    hidden: [2048, 4096]
    tp: [1, 2, 4]
    sharding: [ddp, zero-1, fsdp]
"""


@click.command(
    cls=Command,
    help=_HELP,
    examples=(
        "armillary generate learn corpus corpus --generate plan.yaml --workers 2",
        "armillary generate learn corpus corpus --from step --show",
    ),
)
@click.argument("folder", metavar="CORPUS", type=click.Path(path_type=Path))
@click.option(
    "--from", "prefixes", metavar="TRACES", multiple=True, help="Add these traces; may be repeated."
)
@click.option(
    "--generate", "plans", metavar="PLAN.yaml", multiple=True, type=click.Path(path_type=Path),
    help="Generate the traces that this file describes; may be repeated.",
)  # fmt: skip
@workers_option()
@click.option("--show", is_flag=True, help="Print the contents of the corpus.")
@json_option("Write the contents as JSON.")
def command(
    folder: Path,
    prefixes: tuple[str, ...],
    plans: tuple[Path, ...],
    workers: int,
    show: bool,
    json_file: Path | None,
) -> None:
    """Write the parts of a corpus that are missing."""
    from armillary.lab.learned.corpus import read_corpus, write_corpus

    if not (prefixes or plans or show or json_file):
        raise InputError(f"{folder}: nothing to do, expected --from TRACES, --generate PLAN.yaml or --show")
    if prefixes or plans:
        # length=1: the number of parts is known only once the first one is done.
        with click.progressbar(
            length=1, label="corpus", file=unfiltered(sys.stderr), hidden=not sys.stderr.isatty()
        ) as bar:

            def told(done: int, parts: int) -> None:
                bar.length = parts
                # click counts increments; progress is told as a total.
                bar.update(done - bar.pos)

            count = write_corpus(folder, prefixes, plans, jobs=workers, told=told)
        say(f"{folder}: {count:,} traces")
    if show or json_file:
        from armillary.cli.generate.learn.describe import describe, tables

        facts = describe(read_corpus(folder))
        if show:
            for number, table in enumerate(tables(facts)):
                if number:
                    click.echo()
                show_table(table)
        write_json(json_file, facts)
