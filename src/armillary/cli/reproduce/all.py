"""`armillary reproduce all`: every study with its defaults, on one page."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from armillary.base.errors import ArmillaryError
from armillary.cli.output_file import OUTPUT, OUTPUT_FOLDER
from armillary.cli.outputs import show_table, working
from armillary.cli.reproduce import SUBCOMMANDS

STUDIES = tuple(name for name in SUBCOMMANDS if name != "all")


@click.command(
    help=SUBCOMMANDS["all"] + "\n\n"
    "It takes two to three minutes of a core, half of them in switch-buffer. A study that fails is named on the page, "
    "and the others go on; the exit code is then 1."
)
@click.option(
    "--only",
    multiple=True,
    type=click.Choice(STUDIES),
    metavar="STUDY",
    help="This study, not all; may be repeated.",
)
@click.option(
    "--results",
    type=OUTPUT_FOLDER,
    metavar="FOLDER",
    help="Keep what each study finds there; what the same program has found there is not run again.",
)
@click.option(
    "--json",
    "data",
    type=OUTPUT,
    metavar="FILE",
    help="Write claims, and the cases that decide them, as JSON.",
)
@click.option("--html", "page", type=OUTPUT, metavar="FILE", help="Write the page as HTML.")
def command(only: tuple[str, ...], results: Path | None, data: Path | None, page: Path | None) -> None:
    """Run the studies one after the other."""
    from armillary.evidence.reproduce.summary import Judged, Saved, judged, table, write_json, write_page

    names = [name for name in STUDIES if not only or name in only]
    saved = Saved(results) if results else None
    found: list[Judged] = []
    for number, name in enumerate(names, 1):
        each = saved.get(name) if saved else None
        how = f"from {results}"
        if each is None:
            with working(f"reproducing {name} ({number} of {len(names)})"):
                each = judged(name)
            how = f"{each.seconds:.0f} s"
            if saved and not each.error:
                saved.put(each)
        found.append(each)
        if sys.stderr.isatty():
            click.echo(f"{name}: {each.error or how}", err=True)
    show_table(table(found))
    for path, write in ((data, write_json), (page, write_page)):
        if path:
            write(found, path)
            click.echo(f"wrote {path}", err=True)
    if failed := [each.name for each in found if each.error]:
        raise ArmillaryError(f"{len(failed)} of {len(found)} studies failed: {', '.join(failed)}")
