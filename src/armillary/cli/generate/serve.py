"""`armillary generate serve`: inference of a model on many ranks."""

from __future__ import annotations

from functools import partial

import click

from armillary.cli.command import Command
from armillary.cli.generate import SUBCOMMANDS
from armillary.cli.generate.plan_options import PlanOptions, plan_options
from armillary.cli.generate.request import Request, request_options, show_generated
from armillary.cli.outputs import say, working
from armillary.cli.values import complete_models

_HELP = f"""{SUBCOMMANDS["serve"]}

MODEL is a name of `armillary generate list`, a model file (.yaml), or a Hugging Face config.json or its folder. All
prompts are present at the start; answers grow by one token at a time. The command prints what the workload consists of;
--out writes its traces, --machine simulates it and prints the times of tokens.
"""


@click.command(
    cls=Command,
    help=_HELP,
    examples=(
        "armillary generate serve llama-3-8b --ranks 8 --tp 8 --batch 32 --prompt 512",
        "armillary generate serve llama-3-8b --batch 32 --prompt 512 --tp 8 --machine hgx-h100",
    ),
)
@click.argument("name", metavar="MODEL", shell_complete=complete_models)
@plan_options("inference")
@request_options()
def command(name: str, options: PlanOptions, request: Request) -> None:
    """Generate, describe, and write or simulate."""
    from armillary.report.memory_tables import memory_line
    from armillary.report.workload_tables import workload_json, workload_table
    from armillary.workload.generate import generate, replica_layers
    from armillary.workload.memory.advice import advise
    from armillary.workload.models import load_model
    from armillary.workload.plan.effects import widened
    from armillary.workload.totals import totals

    platform = request.platform()
    model, plan = load_model(name), options.plan(platform)
    with working("generating"):
        trace = generate(model, plan)
        found = totals(trace)
    # Without a machine nothing says how much there is.
    capacity = platform.npu.memory.capacity if platform else 0
    # 2**62: no limit; only the footprint is wanted.
    held = advise(plan, 2**62, partial(replica_layers, model)).footprint
    table = workload_table(model, plan, trace, found)
    table.add_row("memory", memory_line(held, capacity or None))
    for text in widened(plan, model):
        say(text)
    show_generated(table, found)
    described = workload_json(model, plan, trace, found)
    described["memory"] = {
        **{f"{category}_bytes": size for category, size in held.at_peak.items()},
        "needed_bytes": held.needed,
        "capacity_bytes": capacity or None,
    }
    request.carry_out(trace, platform, described)
