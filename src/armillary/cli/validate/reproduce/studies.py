"""The commands of reproductions, each generated from the assumptions of its study."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from armillary.base.errors import InputError
from armillary.cli.command import Command, Option
from armillary.cli.options import html_option, plot_option
from armillary.cli.outputs import say, show_table, working
from armillary.cli.values import PLOTTED_PAGE
from armillary.evidence.reproduce.assumptions import about, flag, read, variations
from armillary.evidence.reproduce.outcome import Grid, Outcome, changed

if TYPE_CHECKING:
    from collections.abc import Iterator


MORE = {
    "building-blocks": (
        "After the building blocks of ASTRA-sim 2.0 (ISPASS 2023): ring on a Ring, direct on FullyConnected, "
        "halving-doubling on a Switch. Every algorithm runs on every block, and every message is moved."
    ),
    "case1": (
        "After case study 1 of ASTRA-sim 2.0 (ISPASS 2023): W-1D, W-2D, Conv-3D and Conv-4D; All-Reduce, DLRM, GPT-3 "
        "and Transformer-1T."
    ),
    "case2": (
        "After case study 2 of ASTRA-sim 2.0 (ISPASS 2023): the machines and workloads of case1, with "
        "chunks that all take the same route, that Themis schedules, or whose routes an optimiser searched."
    ),
    "case3": (
        "A training step of each mixture of experts that the workload generator knows, with weights in remote memory. "
        "Weights are loaded layer by layer, and gathered over the network or in switches of the memory; gradients "
        "go the opposite way."
    ),
    "comet": (
        "After COMET (arXiv 2211.16648). We could read only its abstract, so every number is an "
        "assumption. MPx_DPy with x y = 1,024, memory per node, then sweeps of memory expansion, network and FLOP/s."
    ),
    "compute-scaling": "After the tutorial at Hot Interconnects.",
    "gemm-share": "After a motivation slide of the ASTRA-sim tutorial.",
    "rings-v100": (
        "After the validation of ASTRA-sim 2.0 (ISPASS 2023) on 4 and 16 V100, whose points are not public; the "
        "measurements here are vTrain's tables."
    ),
    "switch-buffer": (
        "After the study of Hot Interconnects 2020 (ASTRA-sim with ns-3 and TCP/IP). Every NPU has a link to the "
        "switch of its group and one to the global switch. The flat all-reduce is among all NPUs; the hierarchical one "
        "scatters in the group, reduces across groups and gathers in the group. Packets are dropped at the global "
        "switch only."
    ),
    "themis": (
        "After Themis (ISCA 2022), on machines of 1,024 NPUs; and case study 2 of the ASTRA-sim 2.0 slides: equal "
        "bandwidth per NPU in 1 to 4 dimensions. One all-reduce is alone on each machine, in profile physical. The "
        "optimiser searches for order and size of each chunk; no order of any chunks beats the bound."
    ),
    "wafer-scaling": (
        "After case study 1 of ASTRA-sim 2.0 (ISPASS 2023): an all-reduce on Ring, FullyConnected, Ring and Switch of "
        "2x8x8x4 NPUs; the first or the last dimension grows by 2, 4 and 8."
    ),
}
"""Study -> the rest of its help, after the one line of `STUDIES`."""


def command_of(name: str, line: str) -> click.Command:
    """Return the command of a study whose help begins with this line."""
    from armillary.evidence.reproduce.summary import study

    module = study(name)
    return study_command(name, module.Assumptions, module.run, f"{line}\n\n{MORE[name]}")


def study_command(
    name: str, assumptions: type[Any], run: Callable[[Any], Outcome], text: str
) -> click.Command:
    """Return the command: an option for each assumption, and the files to write.

    Args:
        name: Of the command.
        assumptions: A dataclass whose fields are `assumed`.
        run: What it does.
        text: Its help.
    """

    # Options of the study arrive as texts, keyed by the fields.
    def call(plot: Path | None, html: Path | None, sweep: bool, **texts: str) -> None:
        from armillary.evidence.reproduce.page import picture, write_page

        chosen = read(assumptions, texts)
        with working(f"reproducing {name}"):
            outcome = run(chosen)
        click.echo(outcome.title)
        for grid in outcome.grids:
            click.echo()
            show_table(grid.table())
        click.echo()
        show_table(outcome.verdicts())
        # Only where it was asked for: a sweep runs the study again for every alternative.
        swept = None
        if sweep:
            swept = _swept(chosen, run, outcome)
            click.echo()
            show_table(swept.table())
        if plot:
            picture(outcome, plot)
            say(f"wrote {plot}", err=True)
        if html:
            write_page(name, outcome, assumptions, html, texts=texts, sweep=swept)
            say(f"wrote {html}", err=True)

    # The same options as all commands have, declared once.
    for add in (html_option("Write one page with everything.", PLOTTED_PAGE), plot_option("the figure")):
        add(call)
    # Assumptions come first in help: they are what the study is about.
    call.__click_params__ += reversed(list(_options(assumptions)))  # type: ignore[attr-defined]
    calling = f"armillary validate reproduce {name}"
    return click.command(
        name, cls=Command, help=text, examples=(f"{calling} --html {name}.html", f"{calling} --sweep")
    )(call)


def _options(assumptions: type[Any]) -> Iterator[click.Option]:
    # Choices where an assumption has them.
    for name, known in about(assumptions).items():
        kind = click.Choice(known.choices) if known.choices else click.STRING
        yield Option(
            [flag(name), name],
            type=kind,
            default=known.text,
            show_default=True,
            help=known.why,
            heading="What is assumed",
        )
    yield Option(
        ["--sweep"],
        is_flag=True,
        help="Vary each assumption, one at a time, and show which verdicts change.",
        heading="What is run",
    )


def _swept(chosen: Any, run: Callable[[Any], Outcome], base: Outcome) -> Grid:
    rows = []
    for name, text, other in variations(chosen):
        with working(f"{flag(name)} {text}"):
            # An alternative that the study refuses is an answer, too.
            try:
                verdicts = changed(base, run(other))
            except InputError as error:
                verdicts = f"cannot be: {error}"
        rows.append((f"{flag(name)} {text}", verdicts))
    return Grid(
        "Which verdicts change (by the number of the claim)", ("with", "changed verdicts"), tuple(rows)
    )
