"""`armillary generate memory`: what training or inference holds in memory, and whether it fits."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from armillary.base.errors import InputError
from armillary.cli.generate import SUBCOMMANDS
from armillary.cli.generate.plan_options import PlanOptions, plan_options
from armillary.cli.output_file import OUTPUT, PICTURE
from armillary.cli.outputs import show_table, working

if TYPE_CHECKING:
    from armillary.workload.memory.advice import Advice
    from armillary.workload.memory.footprint import Footprint
    from armillary.workload.models import Model
    from armillary.workload.plan.schema import Plan

_PATH = click.Path(path_type=Path)
_HELP = f"""{SUBCOMMANDS["memory"]}

MODEL is a name of `armillary generate list`, a model file (.yaml), or a Hugging Face config.json or its folder. With
--capacity, or a machine that states npu.memory.capacity, changes are proposed where it does not fit. With --prompt
it is inference, with the keys and values of all sequences at their full length.
"""


@click.command(help=_HELP)
@click.argument("name", metavar="MODEL")
@plan_options("both")
@click.option("--capacity", metavar="SIZE", help='Memory of an NPU, e.g. "80 GB".')
@click.option("--on", "machine", type=_PATH, metavar="FILE", help="Study or platform file that states it.")
@click.option(
    "--pipeline-rank", type=click.IntRange(0), metavar="N", help="Show this one, not the one that needs most."
)
@click.option("--png", "picture", type=PICTURE, metavar="FILE", help="Draw a step (.png, .svg or .pdf).")
@click.option("--json", "as_json", type=OUTPUT, metavar="FILE", help="Write the same as JSON.")
def command(
    name: str,
    options: PlanOptions,
    capacity: str | None,
    machine: Path | None,
    pipeline_rank: int | None,
    picture: Path | None,
    as_json: Path | None,
) -> None:
    """Sum up, compare and print."""
    from armillary.base.files import write_text
    from armillary.platform import load_platform
    from armillary.report import memory_tables
    from armillary.workload.generate import assumed_sequence, replica_layers
    from armillary.workload.memory.advice import advise
    from armillary.workload.models import load_model

    platform = load_platform(machine) if machine else None
    room = _capacity(capacity) if capacity else platform.physical.memory.capacity if platform else 0
    if machine and not room:
        raise click.UsageError(f"{machine} has no npu.memory.capacity; expected it, or --capacity")
    model, plan = load_model(name), options.plan(platform)
    with working("summing up"):
        found = advise(plan, room or 2**62, partial(replica_layers, model))
        if pipeline_rank is not None:
            part = _of_rank(model, plan, pipeline_rank)
            changes = found.changes if part.needed > found.capacity else ()
            found = replace(found, footprint=part, changes=changes)
    table = memory_tables.memory_table(found.footprint, room or None)
    click.echo(table.title)
    table.title = None
    if length := assumed_sequence(model, plan):
        click.echo(f"sequence {length:,} assumed, the model's own (--sequence)")
    show_table(table)
    if room:
        click.echo("\n" + memory_tables.advice_line(found))
        if found.changes:
            show_table(memory_tables.advice_table(found))
    if picture:
        from armillary.report.memory_picture import memory_picture

        memory_picture(found.footprint, picture, room or None, model.name)
    if as_json:
        write_text(as_json, json.dumps(_json(found, room), indent=1, ensure_ascii=False) + "\n")
    for path in filter(None, (picture, as_json)):
        click.echo(f"wrote {path}", err=True)


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
    return footprint(partition(replica_layers(model, plan), plan), plan, pipeline_rank)


def _capacity(text: str) -> int:
    from armillary.base.units import parse_bytes

    try:
        room = parse_bytes(text)
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
        "needed_bytes": part.needed,
        "categories": {f"{name}_bytes": size for name, size in part.at_peak.items()},
        "capacity_bytes": room or None,
        "fits": found.fits if room else None,
        "changes": [{"change": each.text, "needed_bytes": each.needed} for each in found.changes],
    }
