"""`armillary generate train`: training steps of a model on many ranks."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import click

from armillary.cli.command import Command
from armillary.cli.generate import SUBCOMMANDS
from armillary.cli.generate.plan_options import PlanOptions, plan_options
from armillary.cli.generate.request import Request, request_options, show_generated
from armillary.cli.outputs import say, working
from armillary.cli.values import complete_models

if TYPE_CHECKING:
    from armillary.engine.common.timeline import Timeline
    from armillary.workload.models import Model
    from armillary.workload.plan.schema import Plan

_HELP = f"""{SUBCOMMANDS["train"]}

MODEL is a name of `armillary generate list`, a model file (.yaml), or a Hugging Face config.json or its folder. The
command prints what a step consists of; --out writes its traces, --machine simulates it.
"""


@click.command(
    cls=Command,
    help=_HELP,
    examples=(
        "armillary generate train llama-3-8b --ranks 8 --batch 8 --tp 2",
        "armillary generate train llama-3-8b --batch 64 --tp 2 --machine hgx-h100 --plot step.png",
    ),
)
@click.argument("name", metavar="MODEL", shell_complete=complete_models)
@plan_options("training")
@request_options("--write")
def command(name: str, options: PlanOptions, request: Request) -> None:
    """Generate, describe, and write or simulate."""
    from armillary.report.workload_tables import workload_json, workload_table
    from armillary.workload.generate import generate
    from armillary.workload.models import load_model
    from armillary.workload.plan.effects import without_effect
    from armillary.workload.totals import totals

    platform = request.platform()
    model, plan = load_model(name), options.plan(platform)
    with working("generating"):
        trace = generate(model, plan)
        found = totals(trace, plan.iterations)
    # A simulation warns itself.
    for text in () if platform else without_effect(plan, model):
        say(f"warning: {text}", err=True)
    table = workload_table(model, plan, trace, found)
    if platform:
        # With a machine its capacity is compared with what a rank needs.
        from armillary.engine.common.assumptions import memory_of
        from armillary.report.memory_fit import fit_text

        table.add_row("memory", fit_text(memory_of(trace, platform)["memory"]))
    show_generated(table, found)
    described = workload_json(model, plan, trace, found)
    request.carry_out(trace, platform, described, partial(_throughput, model, plan))


def _throughput(model: Model, plan: Plan, result: Timeline) -> str:
    """Return samples and tokens per second."""
    from armillary.report.plain import nanoseconds
    from armillary.workload import models

    seconds = float(nanoseconds(result, result.total_ticks)) / 1e9
    samples = plan.batch * plan.iterations / seconds
    sequence = plan.sequence or models.default_sequence(model)
    text = f"Throughput {samples:,.4g} samples/s"
    if sequence:
        text += f", {float(f'{samples * sequence:.4g}'):,.0f} tokens/s"
    return text
