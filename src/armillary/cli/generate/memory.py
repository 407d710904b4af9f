"""`armillary generate memory`: the memory of training or inference, and whether it fits."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from armillary.base.errors import InputError
from armillary.cli.command import Command, option
from armillary.cli.generate import SUBCOMMANDS
from armillary.cli.generate.plan_options import PlanOptions, plan_options
from armillary.cli.options import MACHINE, json_option, machine_option, plot_option
from armillary.cli.outputs import say, show_table, working, write_json
from armillary.cli.values import complete_models

if TYPE_CHECKING:
    from armillary.workload.memory.advice import Advice
    from armillary.workload.memory.footprint import Footprint
    from armillary.workload.models import Model
    from armillary.workload.plan.schema import Plan

_HELP = f"""{SUBCOMMANDS["memory"]}

MODEL is a name of `armillary generate list`, a model file (.yaml), or a Hugging Face config.json or its folder. With
--capacity, or a machine that states npu.memory.capacity, the command proposes changes if the model does not fit. With
--prompt it sums up inference, with the keys and values of all sequences at their full length.
"""


@click.command(
    cls=Command,
    help=_HELP,
    examples=(
        'armillary generate memory llama-3-8b --ranks 8 --batch 8 --tp 2 --capacity "80 GB"',
        "armillary generate memory llama-3-8b --batch 64 --tp 2 --machine hgx-h100 --plot memory.png",
    ),
)
@click.argument("name", metavar="MODEL", shell_complete=complete_models)
@plan_options("both")
@option("--capacity", metavar="SIZE", heading=MACHINE, help='Memory of an NPU, e.g. "80 GB".')
@machine_option("Machine that states the capacity.")
@option(
    "--pipeline-rank",
    type=click.IntRange(0),
    metavar="N",
    heading=MACHINE,
    help="Show this pipeline rank, not the one that needs the most memory.",
)
@plot_option("memory over a step")
@json_option()
def command(
    name: str,
    options: PlanOptions,
    capacity: str | None,
    machine: str | None,
    pipeline_rank: int | None,
    plot: Path | None,
    json_file: Path | None,
) -> None:
    """Sum up, compare and print."""
    from armillary.platform import load_platform
    from armillary.report import memory_tables
    from armillary.workload.generate import assumed_sequence, replica_layers
    from armillary.workload.memory.advice import advise
    from armillary.workload.models import load_model
    from armillary.workload.plan.effects import widened

    # The machine gives ranks and capacity.
    platform = load_platform(machine) if machine else None
    # --capacity wins over the machine's.
    room = _capacity(capacity) if capacity else platform.npu.memory.capacity if platform else 0
    if machine and not room:
        raise click.UsageError(f"{machine} has no npu.memory.capacity; expected it, or --capacity")
    model, plan = load_model(name), options.plan(platform)
    with working("summing up"):
        # 2**62: no limit, so that only the footprint is summed up.
        found = advise(plan, room or 2**62, partial(replica_layers, model))
        if pipeline_rank is not None:
            part = _of_rank(model, plan, pipeline_rank)
            # Changes are proposed for the rank that needs most, not for one that fits.
            changes = found.changes if part.needed > found.capacity else ()
            found = replace(found, footprint=part, changes=changes)
    table = memory_tables.memory_table(found.footprint, room or None)
    click.echo(table.title)
    # The title goes out by itself: rich would centre and wrap it.
    table.title = None
    if length := assumed_sequence(model, plan):
        say(f"sequence {length:,} assumed, the model's own (--sequence)")
    for text in widened(plan, model):
        say(text)
    show_table(table)
    if room:
        click.echo("\n" + memory_tables.advice_line(found))
        if found.changes:
            show_table(memory_tables.advice_table(found))
    if plot:
        from armillary.report.memory_picture import memory_picture

        memory_picture(found.footprint, plot, room or None, model.name)
        say(f"wrote {plot}", err=True)
    write_json(json_file, _json(found, room))


def _of_rank(model: Model, plan: Plan, pipeline_rank: int) -> Footprint:
    from armillary.workload.generate import replica_layers
    from armillary.workload.memory.footprint import footprint
    from armillary.workload.pipeline.partition import partition

    if plan.serve:
        raise InputError(f"--pipeline-rank {pipeline_rank}: expected a plan of training, without --prompt")
    if pipeline_rank >= plan.parallel.pp:
        raise InputError(
            f"--pipeline-rank {pipeline_rank}: expected one below pp {plan.parallel.pp} "
            f"(nearest: {plan.parallel.pp - 1})"
        )
    # A rank of the pipeline stands for all of its replicas.
    return footprint(partition(replica_layers(model, plan), plan), plan, pipeline_rank)


def _capacity(text: str) -> int:
    from armillary.base.units import parse_capacity

    try:
        room = parse_capacity(text)
    except ValueError as error:
        raise InputError(f"--capacity: {error}") from error
    if not room:
        raise InputError(f"--capacity: got '{text}', expected more than nothing")
    return room


def _json(found: Advice, room: int) -> dict[str, Any]:
    """Return the result as plain values; the last part of a key is the unit of its number."""
    part = found.footprint
    return {
        "schema": "armillary-memory",
        "version": 1,
        "pipeline_rank": part.stage,
        "at": part.where,
        "peak_bytes": part.peak,
        "allocated_bytes": part.peak,
        "reserved_bytes": part.reserved,
        "needed_bytes": part.needed,
        "categories": {f"{name}_bytes": size for name, size in part.at_peak.items()},
        # Without a capacity nothing can be said about fitting.
        "capacity_bytes": room or None,
        "fits": found.fits if room else None,
        "changes": [{"change": each.text, "needed_bytes": each.needed} for each in found.changes],
    }
