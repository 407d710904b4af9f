"""`armillary run`: simulate a study file, or ASTRA-sim's input files."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from armillary.cli import COMMANDS
from armillary.cli.command import Command, option
from armillary.cli.options import (
    MACHINE,
    WORKLOAD,
    astra_sim_options,
    chosen_terms,
    comm_groups_option,
    costs_of,
    efficiency_option,
    machine_option,
    network_model_option,
    print_costs,
    profile_option,
    sample_options,
    terms_options,
    with_efficiency,
)
from armillary.cli.outputs import Outputs, output_options, say, working
from armillary.cli.values import complete_software

if TYPE_CHECKING:
    from armillary.engine.multi_job import JobsResult
    from armillary.explore.result import Result
    from armillary.platform.files.native import Study
    from armillary.platform.model import Platform
    from armillary.trace import Trace

_PATH = click.Path()


@click.command(
    cls=Command,
    help=f"{COMMANDS['run']}\n\nGive STUDY, or --workload with --machine, or --workload with --system and "
    "--network. --pytorch replaces the workload in each case, and also accepts a Kineto trace alone. With --pytorch "
    "or --workload and no machine, everything takes its recorded time. --captured takes the output of `armillary "
    "capture`.",
    examples=(
        "armillary run examples/all_reduce.yaml --json -",
        "armillary run examples/llama.yaml --plot step.png --save step.npz",
        "armillary run --workload step --machine hgx-h100",
        "armillary run examples/varying.yaml --samples 200 --plot samples.png",
    ),
)
@click.argument("study", type=_PATH, required=False)
@option("--workload", type=_PATH, metavar="PREFIX", heading=WORKLOAD, help="Trace files PREFIX.<rank>.et.")
@option(
    "--pytorch",
    type=_PATH,
    metavar="PATH",
    heading=WORKLOAD,
    help="A PyTorch trace, such as Kineto's, or a folder with the traces of all ranks.",
)
@option(
    "--captured",
    type=_PATH,
    metavar="DIR",
    heading=WORKLOAD,
    help="Output folder of `armillary capture --out DIR`.",
)
@option(
    "--host-time", metavar="TIME", heading=WORKLOAD,
    help="Time that the host of --captured takes to call an operator; by default the software's value.",
)  # fmt: skip
@option(
    "--software", metavar="NAME", heading=WORKLOAD, shell_complete=complete_software,
    help="Training software of the program of --captured, as in `armillary train`; by default what the program "
    "imported. none: add nothing to kernels.",
)  # fmt: skip
@option(
    "--from-one-rank", is_flag=True, heading=WORKLOAD, help="All ranks do what the one rank of --pytorch did."
)
@comm_groups_option
@machine_option("Machine on which --workload or --pytorch runs; the workload of a study is ignored.")
@astra_sim_options
@option("--memory", type=_PATH, metavar="JSON", heading=MACHINE, help="ASTRA-sim remote-memory file.")
@profile_option()
@network_model_option
@option(
    "--no-fold",
    is_flag=True,
    heading=MACHINE,
    help="Simulate every rank on its own: the same result, but slower.",
)
@terms_options
@efficiency_option
@sample_options
@output_options
def command(
    study: str | None,
    workload: str | None,
    pytorch: str | None,
    captured: str | None,
    host_time: str | None,
    software: str | None,
    from_one_rank: bool,
    machine: str | None,
    system: Path | None,
    network: Path | None,
    memory: str | None,
    comm_groups: Path | None,
    profile: str | None,
    network_model: str | None,
    no_fold: bool,
    no_terms: bool,
    term_costs: bool,
    efficiency: str | None,
    samples: int | None,
    seed: int | None,
    workers: int | None,
    outputs: Outputs,
) -> None:
    """Simulate and report."""
    if samples is None:
        for needs, count in {"seed": seed, "workers": workers}.items():
            if count is not None:
                raise click.UsageError(f"--{needs} needs --samples")
    else:
        from armillary.cli.sampling import check_sample_options

        check_sample_options(outputs, {"captured": captured, "term-costs": term_costs})
    # Files that belong together, for the checks below.
    pair = {"system": system, "network": network}
    files = pair | {"memory": memory, "comm-groups": comm_groups}
    given = [f"--{name}" for name, path in (files | {"workload": workload}).items() if path]
    if study and given:
        raise click.UsageError(f"STUDY and {given[0]} exclude each other")
    if pytorch and workload:
        raise click.UsageError("--pytorch and --workload exclude each other")
    if captured and (other := "STUDY" if study else given[0] if given else "--pytorch" if pytorch else ""):
        raise click.UsageError(f"--captured and {other} exclude each other")
    if captured and not machine:
        raise click.UsageError("--captured needs --machine")
    if host_time and not captured:
        raise click.UsageError("--host-time is for --captured")
    if software and not captured:
        raise click.UsageError("--software is for --captured")
    # A machine replaces the whole description, but --workload.
    if machine and (others := ["STUDY"] * bool(study) + [name for name in given if name != "--workload"]):
        raise click.UsageError(f"--machine and {others[0]} exclude each other")
    if machine and not (workload or pytorch or captured):
        raise click.UsageError("--machine needs --workload, --pytorch or --captured")
    if from_one_rank and not pytorch:
        raise click.UsageError(
            "--from-one-rank is for --pytorch; `armillary trace extrapolate` has it for .et files"
        )
    # --pytorch brings its own workload.
    needed = pair if pytorch else pair | {"workload": workload}
    missing = [f"--{name}" for name, path in needed.items() if not path]
    # Nothing but a trace: everything takes its recorded time.
    replays = (pytorch and not given) or (workload and given == ["--workload"])
    if not (study or machine) and missing and not replays:
        raise click.UsageError(
            f"Missing {', '.join(missing)}"
            if given
            else "Missing argument 'STUDY' (or --workload, --system, --network)"
        )
    of_machines = {
        "efficiency": efficiency,
        "no-terms": no_terms,
        "term-costs": term_costs,
        "samples": samples,
    }
    for name, value in of_machines.items():
        if value and not (study or machine):
            raise click.UsageError(f"--{name} is for a STUDY or a --machine")
    if no_terms and term_costs:
        raise click.UsageError("--no-terms and --term-costs exclude each other")
    # Only now: usage errors must not wait for the import of the engine.
    from armillary.engine import simulate as run_trace

    shown: Result | None = None
    with working("simulating"):
        trace = pytorch_trace(pytorch, from_one_rank) if pytorch else None
        step = None
        if captured:
            from armillary.cli.captured import captured_of, places_of, show_places

            step = captured_of(captured, str(machine), software, host_time)
            trace = step.trace
        if replays and workload and not machine:
            # A machine of recorded times needs a time for all communication.
            from armillary.trace.inputs import check_recorded, read_input

            trace = read_input(workload).trace
            check_recorded(trace)
        if study or machine:
            from armillary.base.allowed import SIMULATED
            from armillary.platform.files.native import load_platform, load_study
            from armillary.workload import study_trace

            if workload:
                from armillary.trace import load_trace

                trace = load_trace(workload, bytes_per_node=SIMULATED)
            # A trace of its own replaces the workload of the study.
            trace_of_its_own = trace is not None
            if trace:
                machine_of_study = step.platform if step else load_platform(study or str(machine))
                named = machine_of_study.profile
            else:
                assert study is not None  # a --machine needs a trace
                plan = load_study(study)
                # Several jobs have results of their own, and end here.
                if plan.jobs:
                    for name, value in {
                        "term-costs": term_costs,
                        "samples": samples,
                        "brief": outputs.brief,
                    }.items():
                        if value:
                            raise click.UsageError(f"--{name} is for one workload")
                    machine_of_study = with_efficiency(plan.platform, efficiency)
                    machine_of_study = chosen_terms(machine_of_study, no_terms)
                    jobs = study_jobs(plan, profile, machine_of_study, network_model, fold=not no_fold)
                    outputs.present_jobs(jobs)
                    return
                trace, machine_of_study, named = study_trace(plan), plan.platform, plan.profile
            # The same call runs once more per term with --term-costs.
            simulate = partial(
                run_trace,
                trace,
                profile=profile or named,
                fold=not no_fold,
                network_model=network_model,
            )
            machine_of_study = chosen_terms(with_efficiency(machine_of_study, efficiency, trace), no_terms)
            if samples:
                from armillary.cli.sampling import present_samples
                from armillary.explore.samples.run import sample

                found = sample(
                    trace, machine_of_study, samples, seed=seed or 0, profile=profile or named,
                    network_model=network_model, fold=not no_fold, workers=workers or 1,
                )  # fmt: skip
                present_samples(found, outputs)
                return
            result = simulate(machine_of_study)
            if step:
                places = places_of(step, step.described(result, machine_of_study))
            costs = costs_of(machine_of_study, simulate) if term_costs else None
            if outputs.html:
                from armillary.explore.result import Result

                name = study or " on ".join(filter(None, (workload or pytorch or captured, machine)))
                shown = Result(name, result, machine_of_study, simulate, None if trace_of_its_own else plan)
        elif trace and replays:
            from armillary.platform.model import recorded_machine

            result = run_trace(
                trace, recorded_machine(trace.n_ranks), profile=profile or "physical", fold=not no_fold
            )
        else:
            # ASTRA-sim's files mean that program's semantics, unless a PyTorch trace runs on them.
            chosen = profile or ("physical" if trace else "astra-sim")
            from armillary import astra_sim

            result = astra_sim.simulate(
                trace or str(workload),
                str(system),
                str(network),
                memory,
                comm_groups,
                network_model=network_model,
                profile=chosen,
                fold=not no_fold,
            )
    outputs.present(result, shown=shown)
    if step:
        show_places(step, *places)
    if (study or machine) and costs:
        print_costs(costs)


def pytorch_trace(source: str, from_one_rank: bool = False) -> Trace:
    """Return a PyTorch recording, a file or the folder of all ranks, converted; prints the assumptions."""
    from armillary.convert import front_end
    from armillary.lab.extrapolation import as_all_ranks

    converted = front_end("pytorch").convert([Path(source)])
    for warning in converted.warnings:
        say(f"warning: {warning}", err=True)
    for line in converted.statements:
        click.echo(line, err=True)
    if not from_one_rank:
        return converted.trace
    whole, warning = as_all_ranks(converted.trace, source)
    say(f"warning: {warning}", err=True)
    return whole


def study_jobs(
    study: Study, profile: str | None, platform: Platform, network_model: str | None, *, fold: bool
) -> JobsResult:
    """Simulate the jobs of a study; jobs with the same workload and number of NPUs share a trace."""
    from armillary.base.errors import InputError
    from armillary.engine.multi_job import simulate_jobs
    from armillary.trace.compose import PlacedJob
    from armillary.workload import study_trace

    if profile == "astra-sim":
        raise InputError(f"{study.path}: several jobs are for profile physical")
    traces: dict[object, Trace] = {}
    jobs = []
    for job in study.jobs:
        # Repetitions of a job have one place in the file, and one trace.
        if job.work.place not in traces:
            traces[job.work.place] = study_trace(job.work)
        jobs.append(PlacedJob(job.name, traces[job.work.place], job.npus, job.arrival_ns))
    return simulate_jobs(jobs, platform, fold=fold, network_model=network_model)
