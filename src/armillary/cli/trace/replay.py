"""`armillary trace replay`: execute a Chakra trace on this hardware, and compare measured with simulated times."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from armillary.cli.command import Command, option
from armillary.cli.options import (
    astra_sim_options,
    comm_groups_option,
    json_option,
    machine_option,
    network_model_option,
    profile_option,
    ranks_option,
)
from armillary.cli.outputs import show_table, working, write_json
from armillary.cli.trace import SUBCOMMANDS

if TYPE_CHECKING:
    from armillary.platform import Platform
    from armillary.trace import Trace

_REPLAY = "The replay"


@click.command(
    cls=Command,
    help=f"{SUBCOMMANDS['replay']}\n\nTRACE is a prefix of files TRACE.<rank>.et, or the files of all ranks in "
    "order, or one file that N ranks run. If --machine, or --system and --network, give a machine, times are "
    "compared with a simulation, otherwise with the times in the trace.",
    examples=(
        "armillary trace replay step --machine machine.yaml --json measured.json",
        "armillary trace replay step.0.et --ranks 4 --backend gloo",
    ),
)
@click.argument("traces", nargs=-1, required=True, metavar="TRACE...")
@option(
    "--backend",
    type=click.Choice(("gloo", "nccl")),
    heading=_REPLAY,
    help="Communication backend; by default nccl if each rank has a GPU.",
    # By default all that the trace has.
)
@ranks_option("Number of ranks; by default as many as the trace has.", heading=_REPLAY)
@option(
    "--compute", type=click.Choice(("durations", "shapes", "none")), default="durations", show_default=True,
    heading=_REPLAY, help="durations: wait as long as the trace says; shapes: do its FLOPs and bytes; none: skip.",
)  # fmt: skip
@option(
    "--iterations",
    type=click.IntRange(1),
    default=5,
    show_default=True,
    heading=_REPLAY,
    help="Measured iterations.",
)
@option(
    "--warmup",
    type=click.IntRange(0),
    default=1,
    show_default=True,
    heading=_REPLAY,
    help="Warm-up iterations before those.",
)
@option("--timeout", type=click.FloatRange(0, min_open=True), default=60.0, show_default=True,
        heading=_REPLAY, metavar="SECONDS", help="Time without progress after which the replay counts as "
        "stuck.")  # fmt: skip
@machine_option("Machine on which to simulate the trace; the workload of a study is ignored.")
@astra_sim_options
@comm_groups_option
@profile_option()
@network_model_option
@json_option("Write all times as JSON.")
def command(
    traces: tuple[str, ...],
    backend: str | None,
    ranks: int | None,
    compute: str,
    iterations: int,
    warmup: int,
    timeout: float,
    machine: str | None,
    system: Path | None,
    network: Path | None,
    comm_groups: Path | None,
    profile: str | None,
    network_model: str | None,
    json_file: Path | None,
) -> None:
    """Replay, simulate and compare."""
    from armillary.engine import simulate
    from armillary.evidence.replay import compare, replay
    from armillary.evidence.replay.show import as_json, headline, table

    # Read before the trace: errors of the machine should come first.
    known = _machine(machine, system, network, comm_groups)
    trace = _trace(traces, ranks)
    # A machine says what its profile is; without one the trace's times are compared.
    platform, meaning = known if known else (None, "physical")
    timeline = None
    # Only then is there something to compare with.
    if platform is not None:
        with working("simulating"):
            # The profile of the option wins over that of the file.
            timeline = simulate(trace, platform, profile=profile or meaning, network_model=network_model)
    with working("replaying"):
        measured = replay(
            trace, backend=backend, compute=compute, iterations=iterations, warmup=warmup, timeout=timeout,
            platform=platform,
        )  # fmt: skip
    comparison = compare(measured, timeline)
    click.echo(headline(measured, comparison) + "\n")
    show_table(table(comparison))
    write_json(json_file, as_json(measured, comparison))


def _trace(names: tuple[str, ...], ranks: int | None) -> Trace:
    from armillary.base.errors import InputError
    from armillary.trace import Trace, load_trace, read_graph

    # A prefix is no file.
    if len(names) == 1 and not Path(names[0]).is_file():
        return load_trace(names[0], ranks=ranks)
    if len(names) == 1:
        # One file for all ranks: they do the same.
        return Trace.replicate(read_graph(names[0]), ranks or 1)
    # Files are given for each rank, in their order.
    if ranks not in (None, len(names)):
        raise InputError(f"--ranks {ranks}: there are {len(names)} trace files; expected {len(names)}")
    return Trace.from_ranks([read_graph(name) for name in names])


def _machine(
    machine: str | None, system: Path | None, network: Path | None, comm_groups: Path | None
) -> tuple[Platform, str] | None:
    """Return the machine to simulate and the profile it is meant for, None if none is given."""
    if machine and (system or network or comm_groups):
        raise click.UsageError("--machine and ASTRA-sim's files exclude each other")
    if machine:
        from armillary.platform import load_platform

        platform = load_platform(machine)
        return platform, platform.profile
    # ASTRA-sim's files mean that program's semantics.
    if system and network:
        from armillary.platform.files.astra_sim import read_platform

        return read_platform(system, network, None, comm_groups), "astra-sim"
    # Groups and files of ASTRA-sim belong together.
    if system or network or comm_groups:
        raise click.UsageError("--system and --network go together")
    return None
