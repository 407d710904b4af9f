"""`armillary collective synthesize`: find a collective for a network."""

from __future__ import annotations

from pathlib import Path

import click

from armillary.cli.output_file import OUTPUT, OUTPUT_FOLDER, PICTURE


@click.command()
@click.argument("platform", metavar="PLATFORM|STUDY|PRESET", type=click.Path())
@click.option(
    "--operation",
    type=click.Choice(("all-reduce", "all-gather", "reduce-scatter")),
    default="all-reduce",
    show_default=True,
    help="What it computes.",
)
@click.option(
    "--size", required=True, metavar="SIZE", help='Bytes of the vector, or of all gathered: "1 GB".'
)
@click.option(
    "--chunks-per-npu",
    type=click.IntRange(1),
    metavar="K",
    help="Chunks of a share.  [default: several are tried]",
)
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True, help="Of the random choices.")
@click.option("--tries", type=click.IntRange(1, 1000), default=4, show_default=True, help="Seeds to try.")
@click.option(
    "--network-model",
    type=click.Choice(("congestion", "flow")),
    default="congestion",
    show_default=True,
    help="What simulates it and the built-in algorithms.",
)
@click.option("--msccl", type=OUTPUT, metavar="XML", help="Write the schedule as MSCCL XML.")
@click.option("--trace", type=OUTPUT_FOLDER, metavar="DIR", help="Write Chakra traces DIR/rank.RANK.et.")
@click.option("--plot", type=PICTURE, metavar="PICTURE", help="Draw it: .png, .svg or .pdf.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON, times in ns.")
def command(
    platform: str,
    operation: str,
    size: str,
    chunks_per_npu: int | None,
    seed: int,
    tries: int,
    network_model: str,
    msccl: Path | None,
    trace: Path | None,
    plot: Path | None,
    as_json: bool,
) -> None:
    """Find a collective for a network, and compare it with the built-in algorithms."""
    import json

    from armillary.base.errors import InputError
    from armillary.base.files import write_text
    from armillary.base.units import parse_bytes
    from armillary.cli.outputs import show_table, working
    from armillary.platform import load_platform

    try:
        count = parse_bytes(size)
    except ValueError as error:
        raise InputError(f"--size: {error}") from error
    if count < 1:
        raise InputError(f"--size: got {size!r}, expected at least 1 byte")
    machine = load_platform(platform)
    from armillary.explore.synthesis import compare
    from armillary.explore.synthesis_show import describe, draw, table

    with working("synthesizing"):
        found = compare(
            machine,
            operation,
            count,
            chunks_per_npu=chunks_per_npu,
            seed=seed,
            tries=tries,
            network_model=network_model,
        )
    if as_json:
        click.echo(json.dumps(describe(found), indent=2))
    else:
        show_table(table(found))
    note = (
        "" if found.taken == "synthesized" else f": the synthesized schedule, though {found.taken} is faster"
    )
    if msccl:
        from armillary.collective.synthesis.xml import to_msccl

        write_text(msccl, to_msccl(found.schedule))
        click.echo(f"wrote {msccl}{note}", err=True)
    if trace:
        from armillary.collective.synthesis.traces import to_trace
        from armillary.trace import write_trace

        trace.mkdir(parents=True, exist_ok=True)
        write_trace(trace / "rank", to_trace(found.schedule, machine.system.local_mem_bandwidth))
        click.echo(f"wrote {trace}/rank.0.et to rank.{machine.npus - 1}.et{note}", err=True)
    if plot:
        draw(found, plot)
        click.echo(f"wrote {plot}", err=True)
