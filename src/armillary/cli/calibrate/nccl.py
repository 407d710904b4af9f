"""`armillary calibrate nccl`: a fit of collectives from logs of nccl-tests."""

from __future__ import annotations

from pathlib import Path

import click

from armillary.cli.calibrate import SUBCOMMANDS
from armillary.cli.command import Command, option
from armillary.cli.options import device_option, plot_option
from armillary.cli.outputs import say
from armillary.cli.values import OUTPUT

_HELP = f"""{SUBCOMMANDS["nccl"]}

LOG is the output of a program of nccl-tests (all_reduce_perf, all_gather_perf, reduce_scatter_perf, alltoall_perf,
sendrecv_perf, broadcast_perf), or a CSV file of such times. Several files are fitted together. The fit uses the
out-of-place times. A study uses the fit with `platform: {{collectives: {{fit: FILE}}}}`.
"""


@click.command(
    cls=Command,
    help=_HELP,
    examples=(
        "armillary calibrate nccl all_reduce_8.log --out my-cluster.yaml",
        "armillary calibrate nccl all_reduce_*.log --device h100-sxm --plot fit.png",
    ),
)
@click.argument("logs", metavar="LOG…", nargs=-1, required=True, type=click.Path(path_type=Path))
@option("--name", help="Title of the fit; by default that of the output file.")
@device_option("GPU, e.g. h100-sxm, if the files name none or several.")
@option(
    "--gpus-per-node",
    type=click.IntRange(min=1),
    metavar="N",
    help="GPUs per node, if a file does not list its ranks.",
)
@option(
    "--operation", metavar="NAME", help="Operation of logs that do not name their program, e.g. all-reduce."
)
@option("-o", "--out", type=OUTPUT, metavar="FILE", help="Write the fit (.yaml).")
@plot_option("bus bandwidth over size")
def command(
    logs: tuple[Path, ...],
    name: str | None,
    device: str | None,
    gpus_per_node: int | None,
    operation: str | None,
    out: Path | None,
    plot: Path | None,
) -> None:
    """Fit, print and write."""
    from armillary.base.files import write_text
    from armillary.cli.outputs import show_table, working
    from armillary.collective.fitted.read import load_fit, sheets
    from armillary.collective.fitted.write import text_of
    from armillary.evidence.calibrate import nccl, nccl_show
    from armillary.evidence.calibrate.nccl_device import choose, known_operation
    from armillary.evidence.calibrate.nccl_tables import read_file

    what = known_operation(operation)
    # All logs are one machine.
    samples = [sample for path in logs for sample in read_file(path, what, gpus_per_node)]
    # The data sheet decides peaks of links; samples of other devices are left out.
    sheet_name, samples = choose(samples, device)
    title = name or (out.stem if out else sheet_name)
    with working("fitting"):
        sheet = sheets()[sheet_name]
        # What the logs do not tell is that of such a device.
        like = load_fit(sheet_name).mechanism
        fit = nccl.fit_cluster(title, sheet, samples, [path.name for path in logs], like)
        # Errors on unseen sizes: those on fitted ones would flatter.
        held_out = nccl.held_out_sizes(samples, lambda sample: sheet, known=like)
    say(nccl_show.headline(fit, sheet_name, samples))
    click.echo()
    assert fit.mechanism is not None
    show_table(nccl_show.line_table(fit.mechanism))
    say(nccl_show.constants_line(fit, samples))
    click.echo()
    show_table(nccl_show.error_table(nccl.predictions(fit, samples), held_out))
    if out:
        write_text(out, text_of(fit, title, sheet_name))
        say(f"wrote {out}", err=True)
    if plot:
        from armillary.evidence.calibrate.nccl_picture import draw

        draw(fit, samples, plot)
        say(f"wrote {plot}", err=True)
