"""`armillary generate learn sample`: new traces."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from armillary.cli.command import Command, option
from armillary.cli.generate.learn import SUBCOMMANDS
from armillary.cli.options import machine_option, seed_option
from armillary.cli.outputs import say, working
from armillary.cli.values import NEW_FOLDER

if TYPE_CHECKING:
    from armillary.trace import Trace


@click.command(
    cls=Command,
    help=f"{SUBCOMMANDS['sample']}\n\nConditions that you omit have their usual values.",
    examples=(
        "armillary generate learn sample model.npz --set layers=40 --machine hgx-h100",
        "armillary generate learn sample model.npz --count 3 --seed 7 --out made",
    ),
)
@click.argument("path", metavar="MODEL.npz", type=click.Path(path_type=Path))
@option(
    "--set",
    "settings",
    metavar="KEY=VALUE",
    multiple=True,
    help="Set a condition, e.g. layers=40.",
)
@option("--count", type=click.IntRange(1), default=1, show_default=True, help="Number of traces.")
@seed_option("Random seed of the first trace.", default=0, show_default=True)
@option("--temperature", type=click.FloatRange(0, 4), default=0.0, show_default=True,
              help="Scale of the random variation of measured durations; sizes follow from the condition.")  # fmt: skip
@option("-o", "--out", metavar="DIR", type=NEW_FOLDER,
        help="Write traces and groups of ranks to a new folder; with several traces, one subfolder each.")  # fmt: skip
@machine_option("Simulate on this machine: a study or platform file, or a preset.")
def command(
    path: Path, settings: tuple[str, ...], count: int, seed: int, temperature: float, out: Path | None,
    machine: str | None,
) -> None:  # fmt: skip
    """Make, describe, write and simulate traces."""
    from armillary.base.counts import MOST_DRAWS, check_count
    from armillary.base.units import format_time
    from armillary.lab.learned.conditions import read_settings
    from armillary.lab.learned.neural.model_file import open_sampler

    check_count(count, MOST_DRAWS, f"--count {count}: traces", "a smaller count")
    platform = None
    if machine:
        from armillary.platform import load_platform, with_roofline

        # Made traces have no recorded times, like generated ones.
        platform = with_roofline(load_platform(machine))
    given = read_settings(settings)
    sampler = open_sampler(path)
    for number in range(count):
        with working("making"):
            trace = sampler.sample(given, seed=seed + number, temperature=temperature)
        text = f"trace {number}: {trace.n_ranks:,} ranks, {len(trace.graphs):,} distinct, {trace.total_nodes:,} nodes"
        if platform:
            import armillary

            result = armillary.simulate(trace, platform)
            text += f", step {format_time(result.total_ticks)}"
        click.echo(text)
        learned = trace.about.get("learned", {})
        # Warnings are the same for all: shown once.
        if number == 0 and (beyond := learned.get("beyond")):
            say(f"beyond the corpus: {', '.join(beyond)}")
        if number == 0 and (guessed := learned.get("guessed")):
            say(
                f"warning: counts in {', '.join(guessed)} follow rules that do not hold for all of the corpus: "
                "nodes may be missing or too many",
                err=True,
            )
        if out:
            # A folder for each of several.
            _write(out / f"{number}" if count > 1 else out, trace)


def _write(folder: Path, trace: Trace) -> None:
    from armillary.base.files import filling
    from armillary.trace import write_group_file, write_trace

    with filling(folder) as filled:
        write_trace(filled / "rank", trace)
        write_group_file(filled / "groups.json", trace)
    say(
        f"wrote {folder / 'rank'}.<rank>.et of {trace.n_ranks:,} ranks, and {folder / 'groups.json'}",
        err=True,
    )
