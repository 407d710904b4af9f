"""`armillary learn corpus`: traces as tokens with their conditions."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from armillary.base.errors import InputError
from armillary.base.terminal import unfiltered
from armillary.cli.learn import SUBCOMMANDS
from armillary.cli.output_file import OUTPUT
from armillary.cli.outputs import show_table

_HELP = f"""{SUBCOMMANDS["corpus"]}

OUT is a folder. What it has already is kept, so the same command goes on where it was stopped. TRACES is a prefix of
files TRACES.<rank>.et; PLAN.yaml says what to draw:

\b
  count: 1000                 # traces
  seed: 0
  nodes: 50000                # most nodes of one
  choices:                    # of each condition one value is drawn
    hidden: [2048, 4096]
    tp: [1, 2, 4]
    sharding: [ddp, zero-1, fsdp]
"""


@click.command(help=_HELP)
@click.argument("folder", metavar="OUT", type=click.Path(path_type=Path))
@click.option(
    "--from", "prefixes", metavar="TRACES", multiple=True, help="Take these traces; may be repeated."
)
@click.option(
    "--generate", "plans", metavar="PLAN.yaml", multiple=True, type=click.Path(path_type=Path),
    help="Generate what this file asks for; may be repeated.",
)  # fmt: skip
@click.option("--jobs", type=click.IntRange(1), default=1, show_default=True, help="Processes.")
@click.option("--show", is_flag=True, help="Print what the corpus consists of.")
@click.option("--json", "json_file", type=OUTPUT, metavar="FILE", help="Write that as JSON.")
def command(
    folder: Path,
    prefixes: tuple[str, ...],
    plans: tuple[Path, ...],
    jobs: int,
    show: bool,
    json_file: Path | None,
) -> None:
    """Write the parts of a corpus that are missing."""
    from armillary.lab.learned.corpus import read_corpus, write_corpus

    if not (prefixes or plans or show or json_file):
        raise InputError(f"{folder}: nothing to do, expected --from TRACES, --generate PLAN.yaml or --show")
    if prefixes or plans:
        with click.progressbar(
            length=1, label="corpus", file=unfiltered(sys.stderr), hidden=not sys.stderr.isatty()
        ) as bar:

            def told(done: int, parts: int) -> None:
                bar.length = parts
                bar.update(done - bar.pos)

            count = write_corpus(folder, prefixes, plans, jobs=jobs, told=told)
        click.echo(f"{folder}: {count:,} traces")
    if show or json_file:
        import json

        from armillary.base.files import write_text
        from armillary.cli.learn.describe import describe, tables

        facts = describe(read_corpus(folder))
        if show:
            for number, table in enumerate(tables(facts)):
                if number:
                    click.echo()
                show_table(table)
        if json_file:
            write_text(json_file, json.dumps(facts, indent=1, ensure_ascii=False) + "\n")
            click.echo(f"wrote {json_file}", err=True)
