"""`armillary replay`: execute a Chakra trace on this hardware, measured against simulated."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

from armillary.cli import COMMANDS
from armillary.cli.output_file import OUTPUT
from armillary.cli.outputs import network_model_option, show_table, working

if TYPE_CHECKING:
    from armillary.platform import Platform
    from armillary.trace import Trace

_PATH = click.Path(path_type=Path)


@click.command(
    help=f"{COMMANDS['replay']}\n\nTRACE is a prefix of files TRACE.<rank>.et, or the files of all ranks in order, or "
    "one file that N ranks run. Times are compared with a simulation where --study, or --system and --network, "
    "name a machine, else with those in the trace."
)
@click.argument("traces", nargs=-1, required=True, metavar="TRACE...")
@click.option(
    "--backend", type=click.Choice(("gloo", "nccl")), help="By default nccl if each rank has a GPU."
)
@click.option("--nproc", type=click.IntRange(1), metavar="N", help="Ranks, as many as the trace has.")
@click.option(
    "--compute", type=click.Choice(("durations", "shapes", "none")), default="durations", show_default=True,
    help="Wait as long as the trace says; do its FLOPs and bytes; skip.",
)  # fmt: skip
@click.option("--iterations", type=click.IntRange(1), default=5, show_default=True, help="Times measured.")
@click.option("--warmup", type=click.IntRange(0), default=1, show_default=True, help="Times before that.")
@click.option("--timeout", type=click.FloatRange(0, min_open=True), default=60.0, show_default=True,
              help="Seconds without progress after which it is stuck.")  # fmt: skip
@click.option(
    "--study", type=_PATH, metavar="FILE", help="Study file of the machine; its workload is ignored."
)
@click.option("--system", type=_PATH, metavar="JSON", help="ASTRA-sim system file.")
@click.option("--network", type=_PATH, metavar="YAML", help="ASTRA-sim network file.")
@click.option("--comm-groups", type=_PATH, metavar="JSON", help="ASTRA-sim communicator-group file.")
@click.option("--profile", type=click.Choice(("astra-sim", "physical")), help="Meaning of the numbers.")
@network_model_option
@click.option("--json", "report", type=OUTPUT, metavar="FILE", help="Write all times.")
def command(
    traces: tuple[str, ...],
    backend: str | None,
    nproc: int | None,
    compute: str,
    iterations: int,
    warmup: int,
    timeout: float,
    study: Path | None,
    system: Path | None,
    network: Path | None,
    comm_groups: Path | None,
    profile: str | None,
    network_model: str | None,
    report: Path | None,
) -> None:
    """Replay, simulate and compare."""
    from armillary.base.files import write_text
    from armillary.engine import simulate
    from armillary.evidence.replay import compare, replay
    from armillary.evidence.replay.show import as_json, headline, table

    machine = _machine(study, system, network, comm_groups)
    trace = _trace(traces, nproc)
    platform, meaning = machine if machine else (None, "physical")
    timeline = None
    if platform is not None:
        with working("simulating"):
            timeline = simulate(trace, platform, profile=profile or meaning, network_model=network_model)
    with working("replaying"):
        measured = replay(
            trace, backend=backend, compute=compute, iterations=iterations, warmup=warmup, timeout=timeout,
            platform=platform,
        )  # fmt: skip
    comparison = compare(measured, timeline)
    click.echo(headline(measured, comparison) + "\n")
    show_table(table(comparison))
    if report:
        write_text(report, json.dumps(as_json(measured, comparison)))
        click.echo(f"wrote {report}", err=True)


def _trace(names: tuple[str, ...], nproc: int | None) -> Trace:
    from armillary.base.errors import InputError
    from armillary.trace import Trace, load_trace, read_graph

    if len(names) == 1 and not Path(names[0]).is_file():
        return load_trace(names[0], ranks=nproc)
    if len(names) == 1:
        return Trace.replicate(read_graph(names[0]), nproc or 1)
    if nproc not in (None, len(names)):
        raise InputError(f"--nproc {nproc}: there are {len(names)} trace files; expected {len(names)}")
    return Trace.from_ranks([read_graph(name) for name in names])


def _machine(
    study: Path | None, system: Path | None, network: Path | None, comm_groups: Path | None
) -> tuple[Platform, str] | None:
    """Return the machine to simulate and the profile it is meant for, None if none is given."""
    if study and (system or network or comm_groups):
        raise click.UsageError("--study and ASTRA-sim's files exclude each other")
    if study:
        from armillary.platform.files.native import load_study

        plan = load_study(study)
        return plan.platform, plan.profile
    if system and network:
        from armillary.platform.files.astra_sim import read_platform

        return read_platform(system, network, None, comm_groups), "astra-sim"
    if system or network or comm_groups:
        raise click.UsageError("--system and --network go together")
    return None
