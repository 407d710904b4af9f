"""`armillary generate train`: training steps of a model on many ranks."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from armillary.cli.efficiency import efficiency_option, with_efficiency
from armillary.cli.generate import SUBCOMMANDS
from armillary.cli.generate.plan_options import PlanOptions, plan_options
from armillary.cli.outputs import Outputs, output_options, show_table, working

if TYPE_CHECKING:
    from armillary.engine.timeline import Timeline
    from armillary.trace import Trace
    from armillary.workload.models import Model
    from armillary.workload.plan.schema import Plan

_PATH = click.Path(path_type=Path)
_HELP = f"""{SUBCOMMANDS["train"]}

MODEL is a name of `armillary generate list`, a model file (.yaml), or a Hugging Face config.json or its folder. What a
step consists of is printed; --write writes its traces, --on simulates it.
"""


@click.command(help=_HELP)
@click.argument("name", metavar="MODEL")
@plan_options
@click.option(
    "--write", "folder", type=_PATH, metavar="DIR", help="Write traces and groups of ranks to a new folder."
)
@click.option(
    "--on", "machine", type=_PATH, metavar="FILE", help="Simulate on the machine of a study or platform file."
)
@efficiency_option
@output_options
def command(
    name: str,
    options: PlanOptions,
    folder: Path | None,
    machine: Path | None,
    efficiency: str | None,
    outputs: Outputs,
) -> None:
    """Generate, describe, and write or simulate."""
    for option, value in {**vars(outputs), "efficiency": efficiency}.items():
        if value is not None and option != "json" and not machine:
            raise click.UsageError(f"--{option} needs --on")
    if folder and folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        from armillary.errors import InputError

        raise InputError(f"--write {folder}: is there already, expected a new or an empty folder")
    from armillary import report
    from armillary.files import write_text
    from armillary.platform import load_platform, with_roofline
    from armillary.report.workload_tables import traffic_table, workload_json, workload_table
    from armillary.workload.generate import generate
    from armillary.workload.models import load_model
    from armillary.workload.totals import totals

    platform = with_efficiency(with_roofline(load_platform(machine)), efficiency) if machine else None
    model, plan = load_model(name), options.plan(platform)
    with working("generating"):
        trace = generate(model, plan)
        found = totals(trace, plan.iterations)
    show_table(workload_table(model, plan, trace, found))
    if found.traffic:
        click.echo()
        show_table(traffic_table(found))
    if folder:
        _write(folder, trace)
    described = workload_json(model, plan, trace, found)
    if platform:
        import armillary

        with working("simulating"):
            result = armillary.simulate(trace, platform)
        click.echo()
        replace(outputs, json=None).present(result)
        click.echo()
        click.echo(_throughput(model, plan, result))
        described["result"] = report.to_json(result)
    if outputs.json:
        write_text(outputs.json, json.dumps(described, indent=1, ensure_ascii=False) + "\n")
        click.echo(f"wrote {outputs.json}", err=True)


def _throughput(model: Model, plan: Plan, result: Timeline) -> str:
    """Return samples and tokens per second, and the utilisation by what the model needs, recomputation left out."""
    from armillary.report.ranks import nanoseconds
    from armillary.workload import models

    seconds = float(nanoseconds(result, result.total_ticks)) / 1e9
    samples = plan.batch * plan.iterations / seconds
    sequence = plan.sequence or models.default_sequence(model)
    text = f"Throughput {samples:,.4g} samples/s"
    if sequence:
        text += f", {float(f'{samples * sequence:.4g}'):,.0f} tokens/s"
    peak = result.info.get("peak_flops_per_ns")
    if plan.recompute != "none" and peak:
        work = models.flops(model, plan.batch, plan.sequence, causal=plan.causal).training * plan.iterations
        share = work / seconds / plan.ranks / (float(peak) * 1e9)
        which = "bf16 peak" if "peaks_flops_per_ns" in result.info else "peak"
        text += f"; {100 * share:.1f} % of the {which} without what is recomputed"
    return text


def _write(folder: Path, trace: Trace) -> None:
    from armillary.trace import write_trace
    from armillary.trace.group_file import write_group_file

    folder.mkdir(parents=True, exist_ok=True)
    prefix, groups = folder / "rank", folder / "groups.json"
    with click.progressbar(
        length=trace.n_ranks, label="writing", file=sys.stderr, hidden=not sys.stderr.isatty()
    ) as bar:
        write_trace(prefix, trace, progress=lambda done: bar.update(done - bar.pos))
    write_group_file(groups, trace)
    click.echo(f"wrote {prefix}.<rank>.et of {trace.n_ranks:,} ranks, and {groups}", err=True)
