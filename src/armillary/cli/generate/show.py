"""`armillary generate show`: parameters and operations of a model."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from armillary.base.hints import one_line
from armillary.cli.command import Command, option
from armillary.cli.generate import SUBCOMMANDS
from armillary.cli.options import json_option
from armillary.cli.outputs import say, show_table, write_json
from armillary.cli.values import complete_models

if TYPE_CHECKING:
    from rich.table import Table

    from armillary.workload.models import Flops, Parameters

_HELP = f"""{SUBCOMMANDS["show"]}

MODEL is a name of `armillary generate list`, a model file (.yaml), or a Hugging Face config.json or its folder. Only
the operations of GEMMs are counted, two per multiply-add.
"""


@click.command(
    cls=Command,
    help=_HELP,
    examples=(
        "armillary generate show llama-3-8b",
        "armillary generate show llama-3-8b --batch 8 --sequence 4096 --recompute full",
    ),
)
@click.argument("name", metavar="MODEL", shell_complete=complete_models)
@option("--batch", type=int, default=1, show_default=True, help="Number of samples.")
@option("--sequence", type=int, help="Tokens per sample; by default the model's own length.")
@option(
    "--recompute",
    type=click.Choice(("none", "selective", "full")),
    default="none",
    show_default=True,
    help="What the backward pass recomputes: nothing, the attention scores, or everything but the head.",
)
@option("--causal", is_flag=True, help="Count only the attention scores that a causal mask keeps.")
@json_option()
def command(
    name: str, batch: int, sequence: int | None, recompute: Any, causal: bool, json_file: Path | None
) -> None:
    """Count and print."""
    from armillary.workload import models

    model = models.load_model(name)
    counts = models.parameters(model)
    work = models.flops(model, batch, sequence, recomputation=recompute, causal=causal)
    # As `flops` assumed it.
    sequence = sequence or models.default_sequence(model)
    click.echo(one_line(f"{model.name} ({model.kind})"))
    for source in model.source:
        click.echo(one_line(f"  {source}"))
    click.echo()
    show_table(_parameters(counts))
    # Tables whose rows nobody publishes.
    if missing := models.unknown_rows(model):
        say(f"{missing:,} embedding tables are not counted: their rows are not known")
    click.echo()
    size = f"batch {batch:,}" + (f", sequence {sequence:,}" if sequence else "")
    show_table(_operations(work, size, recompute))
    request = {"batch": batch, "sequence": sequence, "recomputation": recompute, "causal": causal}
    sums = {key: getattr(work, key) for key in ("parts", "forward", "backward", "recomputed", "training")}
    found = models.facts(model) | {
        "parameters": counts.parts | {"total": counts.total, "active": counts.active},
        "flops": request | sums,
        "description": model.model_dump(exclude_none=True),
    }
    write_json(json_file, found)


def _parameters(counts: Parameters) -> Table:
    table = _table("parameters", counts.parts, "{:,}".format)
    table.add_row("total", f"{counts.total:,}", "")
    # Only mixtures have parameters that a token does not use.
    if counts.idle:
        table.add_row("active per token", f"{counts.active:,}", f"{counts.active / counts.total:.1%}")
    return table


def _operations(work: Flops, size: str, recomputation: str) -> Table:
    from armillary.base.units import format_flops

    def text(count: int) -> str:
        # Operations are a number, no rate.
        return format_flops(count).removesuffix("/s")

    table = _table(f"operations, {size}", work.parts, text)
    table.add_row("forward", text(work.forward), "")
    table.add_row("backward", text(work.backward), "")
    if work.recomputed:
        table.add_row(f"recomputed ({recomputation})", text(work.recomputed), "")
    table.add_row("training step", text(work.training), "")
    return table


def _table(title: str, parts: Mapping[str, int], text: Callable[[int], str]) -> Table:
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    table.add_column(title, min_width=32)
    table.add_column("", justify="right", no_wrap=True)
    table.add_column("share", justify="right", no_wrap=True)
    total = sum(parts.values())
    for name, count in parts.items():
        table.add_row(f"  {one_line(name)}", text(count), f"{count / total:.1%}")
    return table
