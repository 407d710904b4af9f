"""`armillary validate reproduce all`: every study with its defaults, on one page."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from armillary.base.errors import ArmillaryError
from armillary.cli.command import Command, option
from armillary.cli.options import html_option, json_option
from armillary.cli.outputs import say, show_table, working
from armillary.cli.validate.reproduce import STUDIES, SUBCOMMANDS
from armillary.cli.values import OUTPUT, OUTPUT_FOLDER


@click.command(
    cls=Command,
    help=SUBCOMMANDS["all"] + "\n\n"
    "All studies take two to three minutes on one core, half of that in switch-buffer. If a study fails, the page "
    "names it, the others continue, and the exit code is 1.",
    examples=(
        "armillary validate reproduce all --html claims.html",
        "armillary validate reproduce all --only themis --only case2 --out found",
    ),
)
@click.option(
    "--only",
    multiple=True,
    type=click.Choice(tuple(STUDIES)),
    metavar="STUDY",
    help="Run only this study; may be repeated.",
)
@option(
    "-o",
    "--out",
    type=OUTPUT_FOLDER,
    metavar="DIR",
    help="Keep the results of each study in this folder; results of the same program are not computed again.",
)
@json_option("Write claims, and the cases that decide them, as JSON.")
@html_option("Write the page as HTML.", OUTPUT)
def command(only: tuple[str, ...], out: Path | None, json_file: Path | None, html: Path | None) -> None:
    """Run the studies one after the other."""
    from armillary.evidence.reproduce.summary import Judged, Saved, judged, table, write_json, write_page

    names = [name for name in STUDIES if not only or name in only]
    saved = Saved(out) if out else None
    found: list[Judged] = []
    for number, name in enumerate(names, 1):
        # Saved results of the same program are not run again.
        each = saved.get(name) if saved else None
        how = f"from {out}"
        if each is None:
            with working(f"reproducing {name} ({number} of {len(names)})"):
                each = judged(name)
            how = f"{each.seconds:.0f} s"
            # An error is not kept, so that the study runs again.
            if saved and not each.error:
                saved.put(each)
        found.append(each)
        if sys.stderr.isatty():
            say(f"{name}: {each.error or how}", err=True)
    # After all studies: a table of one would come too early.
    show_table(table(found))
    for path, write in ((json_file, write_json), (html, write_page)):
        if path:
            write(found, path)
            say(f"wrote {path}", err=True)
    # The exit code tells scripts that something is missing.
    if failed := [each.name for each in found if each.error]:
        raise ArmillaryError(f"{len(failed)} of {len(found)} studies failed: {', '.join(failed)}")
