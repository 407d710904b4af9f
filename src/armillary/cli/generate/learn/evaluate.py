"""`armillary generate learn evaluate`: the quality of sampled traces."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import click

from armillary.base.text import unfiltered
from armillary.cli.command import Command, option
from armillary.cli.generate.learn import SUBCOMMANDS
from armillary.cli.options import html_option, json_option, plot_option
from armillary.cli.outputs import say, show_table
from armillary.cli.values import PLOTTED_PAGE

_HELP = f"""{SUBCOMMANDS["evaluate"]}

Conditions are drawn from the files of --held-out, which have the format of `armillary generate learn corpus`.
Conditions that the corpus contains are left out. The baseline for each sampled trace is the trace of the corpus with
the nearest condition.
"""
_PATH = click.Path(path_type=Path)


@click.command(
    cls=Command,
    help=_HELP,
    examples=(
        "armillary generate learn evaluate model.npz corpus --held-out plan.yaml",
        "armillary generate learn evaluate model.npz corpus --held-out plan.yaml --html quality.html",
    ),
)
@click.argument("path", metavar="MODEL.npz", type=_PATH)
@click.argument("folder", metavar="CORPUS", type=_PATH)
@option("--held-out", "plans", metavar="PLAN.yaml", multiple=True, required=True, type=_PATH,
              help="Conditions to draw; may be repeated.")  # fmt: skip
@option("--count", type=click.IntRange(1), help="Number of conditions per file; overrides the file.")
@json_option("Write all numbers as JSON.")
@plot_option("sampled against true step times")
@html_option("Write the picture and the tables as one page.", PLOTTED_PAGE)
def command(
    path: Path, folder: Path, plans: tuple[Path, ...], count: int | None, json_file: Path | None, plot: Path | None,
    html: Path | None,
) -> None:  # fmt: skip
    """Measure and show."""
    from armillary.base.counts import MOST_DRAWS, check_count
    from armillary.lab.fidelity.measure import measure
    from armillary.lab.fidelity.page import draw_picture, write_page
    from armillary.lab.fidelity.show import tables, write_json
    from armillary.lab.learned.corpus import read_corpus
    from armillary.lab.learned.neural.model_file import open_sampler
    from armillary.lab.learned.requests import read_request

    requests = [read_request(plan) for plan in plans]
    if count:
        check_count(count, MOST_DRAWS, f"--count {count}: traces", "a smaller count")
        requests = [replace(request, count=count) for request in requests]
    sampler = open_sampler(path)
    corpus = read_corpus(folder)
    # Over all files, for one bar.
    total = sum(request.count for request in requests)
    with click.progressbar(
        length=total, label="measuring", file=unfiltered(sys.stderr), hidden=not sys.stderr.isatty()
    ) as bar:
        found = measure(corpus, sampler.sample, requests, told=lambda done, _: bar.update(done - bar.pos))
    for number, table in enumerate(tables(found)):
        if number:
            click.echo()
        show_table(table)
    # In the order of the help.
    for file, write in ((json_file, write_json), (plot, draw_picture), (html, write_page)):
        if file:
            write(found, file)
            say(f"wrote {file}", err=True)
