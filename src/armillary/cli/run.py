"""`armillary run`: simulate a study file, or ASTRA-sim's input files."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from armillary.cli import COMMANDS
from armillary.cli.outputs import Outputs, network_model_option, output_options, working

if TYPE_CHECKING:
    from armillary.platform.native import Study
    from armillary.trace import Trace

_PATH = click.Path()


@click.command(help=f"{COMMANDS['run']}\n\nEither STUDY, or --workload with --system and --network.")
@click.argument("study", type=_PATH, required=False)
@click.option("--workload", type=_PATH, metavar="PREFIX", help="Trace files PREFIX.<rank>.et")
@click.option("--system", type=_PATH, metavar="JSON", help="ASTRA-sim system file.")
@click.option("--network", type=_PATH, metavar="YAML", help="ASTRA-sim network file.")
@click.option("--memory", type=_PATH, metavar="JSON", help="ASTRA-sim remote-memory file.")
@click.option("--comm-groups", type=_PATH, metavar="JSON", help="ASTRA-sim communicator-group file.")
@click.option("--profile", type=click.Choice(("astra-sim", "physical")), help="Meaning of the numbers.")
@network_model_option
@click.option("--no-fold", is_flag=True, help="Simulate every rank on its own; same result, slower.")
@output_options
def command(
    study: str | None,
    workload: str | None,
    system: str | None,
    network: str | None,
    memory: str | None,
    comm_groups: str | None,
    profile: str | None,
    network_model: str,
    no_fold: bool,
    outputs: Outputs,
) -> None:
    """Simulate and report."""
    needed = {"workload": workload, "system": system, "network": network}
    given = [
        f"--{name}"
        for name, path in (needed | {"memory": memory, "comm-groups": comm_groups}).items()
        if path
    ]
    if study and given:
        raise click.UsageError(f"STUDY and {given[0]} exclude each other")
    missing = [f"--{name}" for name, path in needed.items() if not path]
    if not study and missing:
        raise click.UsageError(
            f"Missing {', '.join(missing)}"
            if given
            else "Missing argument 'STUDY' (or --workload, --system, --network)"
        )
    import armillary

    with working("simulating"):
        if study:
            from armillary.platform.native import load_study

            plan = load_study(study)
            result = armillary.simulate(
                study_trace(plan),
                plan.platform,
                profile=profile or plan.profile,
                fold=not no_fold,
                network_model=network_model,
            )
        else:
            assert workload and system and network
            files = (workload, system, network, memory, comm_groups)
            chosen = profile or "astra-sim"
            result = armillary.astra_sim.simulate(
                *files, network_model=network_model, profile=chosen, fold=not no_fold
            )
    outputs.present(result)


def study_trace(study: Study) -> Trace:
    """Return the workload of a study: its trace files, or one collective on all NPUs."""
    from armillary.trace import CollectiveType, GraphBuilder, Trace, load_trace

    if study.trace is not None:
        return load_trace(study.trace)
    assert study.collective is not None  # a study has one or the other
    kind, size = study.collective.kind, study.collective.size
    builder = GraphBuilder()
    builder.collective(kind, CollectiveType[kind.upper().replace("-", "_")], size)
    return Trace.replicate(builder.graph(str(study.path)), ranks=study.platform.npus)
