"""`armillary run`: simulate a study file, or ASTRA-sim's input files."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from armillary.cli import COMMANDS
from armillary.cli.efficiency import efficiency_option, with_efficiency
from armillary.cli.outputs import Outputs, network_model_option, output_options, working
from armillary.cli.terms import chosen_terms, costs_of, print_costs, terms_options

if TYPE_CHECKING:
    from armillary.engine.multi_job import JobsResult
    from armillary.platform.model import Platform
    from armillary.platform.native import Study
    from armillary.trace import Trace

_PATH = click.Path()


@click.command(
    help=f"{COMMANDS['run']}\n\nEither STUDY, or --workload with --system and --network. --pytorch replaces the "
    "workload of either; without a machine everything takes its recorded time."
)
@click.argument("study", type=_PATH, required=False)
@click.option("--workload", type=_PATH, metavar="PREFIX", help="Trace files PREFIX.<rank>.et")
@click.option("--pytorch", type=_PATH, metavar="DIR", help="Traces host_<rank>.json and device_<rank>.json.")
@click.option("--system", type=_PATH, metavar="JSON", help="ASTRA-sim system file.")
@click.option("--network", type=_PATH, metavar="YAML", help="ASTRA-sim network file.")
@click.option("--memory", type=_PATH, metavar="JSON", help="ASTRA-sim remote-memory file.")
@click.option("--comm-groups", type=_PATH, metavar="JSON", help="ASTRA-sim communicator-group file.")
@click.option("--profile", type=click.Choice(("astra-sim", "physical")), help="Meaning of the numbers.")
@network_model_option
@click.option("--no-fold", is_flag=True, help="Simulate every rank on its own; same result, slower.")
@terms_options
@efficiency_option
@output_options
def command(
    study: str | None,
    workload: str | None,
    pytorch: str | None,
    system: str | None,
    network: str | None,
    memory: str | None,
    comm_groups: str | None,
    profile: str | None,
    network_model: str | None,
    no_fold: bool,
    no_terms: bool,
    term_costs: bool,
    efficiency: str | None,
    outputs: Outputs,
) -> None:
    """Simulate and report."""
    machine = {"system": system, "network": network}
    files = machine | {"memory": memory, "comm-groups": comm_groups}
    given = [f"--{name}" for name, path in (files | {"workload": workload}).items() if path]
    if study and given:
        raise click.UsageError(f"STUDY and {given[0]} exclude each other")
    if pytorch and workload:
        raise click.UsageError("--pytorch and --workload exclude each other")
    needed = machine if pytorch else machine | {"workload": workload}
    missing = [f"--{name}" for name, path in needed.items() if not path]
    if not study and missing and not (pytorch and not given):
        raise click.UsageError(
            f"Missing {', '.join(missing)}"
            if given
            else "Missing argument 'STUDY' (or --workload, --system, --network)"
        )
    for option, value in {"efficiency": efficiency, "no-terms": no_terms, "term-costs": term_costs}.items():
        if value and not study:
            raise click.UsageError(f"--{option} is for a STUDY")
    if no_terms and term_costs:
        raise click.UsageError("--no-terms and --term-costs exclude each other")
    import armillary

    with working("simulating"):
        trace = pytorch_trace(pytorch) if pytorch else None
        if study:
            from armillary.platform.native import load_platform, load_study
            from armillary.workload.plan.request import study_trace

            if trace:
                machine_of_study = load_platform(study)
                named = machine_of_study.profile
            else:
                plan = load_study(study)
                if plan.jobs:
                    if term_costs:
                        raise click.UsageError("--term-costs is for one workload")
                    machine_of_study = with_efficiency(plan.platform, efficiency)
                    machine_of_study = chosen_terms(machine_of_study, no_terms)
                    jobs = study_jobs(plan, profile, machine_of_study, network_model, fold=not no_fold)
                    outputs.present_jobs(jobs)
                    return
                trace, machine_of_study, named = study_trace(plan), plan.platform, plan.profile
            simulate = partial(
                armillary.simulate,
                trace,
                profile=profile or named,
                fold=not no_fold,
                network_model=network_model,
            )
            machine_of_study = chosen_terms(with_efficiency(machine_of_study, efficiency, trace), no_terms)
            result = simulate(machine_of_study)
            costs = costs_of(machine_of_study, simulate) if term_costs else None
        elif trace and not given:
            from armillary.platform.recorded import recorded_machine

            result = armillary.simulate(
                trace, recorded_machine(trace.n_ranks), profile=profile or "physical", fold=not no_fold
            )
        else:
            chosen = profile or ("physical" if trace else "astra-sim")
            result = armillary.astra_sim.simulate(
                trace or str(workload),
                str(system),
                str(network),
                memory,
                comm_groups,
                network_model=network_model,
                profile=chosen,
                fold=not no_fold,
            )
    outputs.present(result)
    if study and costs:
        print_costs(costs)


def pytorch_trace(folder: str) -> Trace:
    """Return the traces of a folder, or of one joined file, converted; prints what was assumed."""
    from armillary.convert import front_end

    converted = front_end("pytorch").convert([Path(folder)])
    for warning in converted.warnings:
        click.echo(f"warning: {warning}", err=True)
    for line in converted.statements:
        click.echo(line, err=True)
    return converted.trace


def study_jobs(
    study: Study, profile: str | None, platform: Platform, network_model: str | None, *, fold: bool
) -> JobsResult:
    """Simulate the jobs of a study; those that run the same on as many NPUs share a trace."""
    from armillary.engine.multi_job import simulate_jobs
    from armillary.errors import InputError
    from armillary.trace.compose import PlacedJob
    from armillary.workload.plan.request import study_trace

    if profile == "astra-sim":
        raise InputError(f"{study.path}: several jobs are for profile physical")
    traces: dict[object, Trace] = {}
    jobs = []
    for job in study.jobs:
        if job.work.place not in traces:
            traces[job.work.place] = study_trace(job.work)
        jobs.append(PlacedJob(job.name, traces[job.work.place], job.npus, job.arrival_ns))
    return simulate_jobs(jobs, platform, fold=fold, network_model=network_model)
