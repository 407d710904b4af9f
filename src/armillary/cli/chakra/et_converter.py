"""`armillary chakra et_converter`: the flags of Chakra's converter of 2024, which tutorials of that year use."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from armillary.cli.chakra import SUBCOMMANDS
from armillary.cli.outputs import say, working
from armillary.cli.values import OutputPrefix

_FILE = click.Path(path_type=Path)


@click.command(help=SUBCOMMANDS["et_converter"])
@click.option(
    "--input_type",
    type=click.Choice(("Text", "PyTorch", "FlexFlow")),
    required=True,
    help="Type of the input file.",
)
@click.option("--input_filename", type=_FILE, required=True, metavar="FILE", help="Input file.")
@click.option(
    "--output_filename", type=OutputPrefix(".0.et"), required=True, metavar="NAME",
    help="Write NAME.<rank>.et; for PyTorch, which has one rank, NAME.",
)  # fmt: skip
@click.option(
    "--num_dims", type=click.IntRange(min=1), metavar="N",
    help="No effect: collectives span all network dimensions.",
)  # fmt: skip
@click.option("--num_npus", type=click.IntRange(min=1), metavar="N", help="Ranks of a text workload.")
@click.option("--num_passes", type=click.IntRange(min=1), metavar="N", help="Steps of a text workload.")
@click.option("--npu_frequency", metavar="MHZ", help="No effect: FlexFlow's times are in ms.")
@click.option("--log_filename", metavar="FILE", help="No effect: no log is written.")
def command(
    input_type: str,
    input_filename: Path,
    output_filename: str,
    num_dims: int | None,
    num_npus: int | None,
    num_passes: int | None,
    npu_frequency: str | None,
    log_filename: str | None,
) -> None:
    """Convert and write."""
    from armillary.base.files import check_writable
    from armillary.convert import front_end
    from armillary.trace import write_graph, write_trace

    options: dict[str, Any] = {}
    if input_type == "Text":
        for name, value in (("num_npus", num_npus), ("num_passes", num_passes)):
            if value is None:
                raise click.UsageError(f"--input_type Text needs --{name}")
        # That program's text workloads count in µs.
        options = {"npus": num_npus, "passes": num_passes, "time_unit": "us"}
    alone = input_type == "PyTorch"
    if alone:
        check_writable("--output_filename", output_filename)
    with working("converting"):
        converted = front_end(input_type.lower()).convert([input_filename], **options)
        if alone:
            write_graph(output_filename, converted.trace.graph(0))
        else:
            write_trace(output_filename, converted.trace)
    for warning in converted.warnings:
        say(f"warning: {warning}", err=True)
    name = output_filename if alone else f"{output_filename}.<rank>.et"
    say(f"wrote {name}: {1 if alone else converted.trace.n_ranks} ranks", err=True)
