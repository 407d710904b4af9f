"""`armillary generate show`: parameters and operations of a model."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from armillary.cli.generate import SUBCOMMANDS
from armillary.cli.outputs import show_table

if TYPE_CHECKING:
    from rich.table import Table

_HELP = f"""{SUBCOMMANDS["show"]}

MODEL is a name of `armillary generate list`, a model file (.yaml), or a Hugging Face config.json or its folder.
Operations are those of matrix products, two per multiply-add.
"""


@click.command(help=_HELP)
@click.argument("name", metavar="MODEL")
@click.option("--batch", type=int, default=1, show_default=True, help="Samples.")
@click.option("--sequence", type=int, help="Tokens per sample; if absent the model's own length.")
@click.option(
    "--recomputation",
    type=click.Choice(("none", "selective", "full")),
    default="none",
    show_default=True,
    help="What the backward pass computes again: nothing, attention scores, or all but the head.",
)
@click.option("--causal", is_flag=True, help="Count only the attention scores that a causal mask keeps.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(
    name: str, batch: int, sequence: int | None, recomputation: Any, causal: bool, as_json: bool
) -> None:
    """Count and print."""
    from armillary.units import format_flops
    from armillary.workload.models import (
        Decoder,
        Gnmt,
        facts,
        flops,
        load_model,
        parameters,
        unknown_rows,
    )

    model = load_model(name)
    counts, work = (
        parameters(model),
        flops(model, batch, sequence, recomputation=recomputation, causal=causal),
    )
    if sequence is None and isinstance(model, Decoder | Gnmt):
        sequence = model.context if isinstance(model, Decoder) else model.sequence
    steps = {"forward": work.forward, "backward": work.backward, "recomputed": work.recomputed}
    if as_json:
        found = facts(model) | {
            "parameters": counts.parts | {"total": counts.total, "active": counts.active},
            "flops": {"batch": batch, "sequence": sequence, "recomputation": recomputation, "causal": causal}
            | {"parts": work.parts, **steps, "training": work.training},
            "description": model.model_dump(exclude_none=True),
        }
        click.echo(json.dumps(found, indent=1))
        return

    def operations(count: int) -> str:
        return format_flops(count).removesuffix("/s")

    click.echo(f"{model.name} ({model.kind})")
    for source in model.source:
        click.echo(f"  {source}")
    table = _table("parameters", counts.parts, counts.total, "{:,}".format)
    table.add_row("total", f"{counts.total:,}", "")
    if counts.idle:
        table.add_row("active per token", f"{counts.active:,}", f"{counts.active / counts.total:.1%}")
    click.echo()
    show_table(table)
    if missing := unknown_rows(model):
        click.echo(f"{missing} embedding tables are not counted: their rows are not known")
    size = f"batch {batch}" + (f", sequence {sequence:,}" if sequence else "")
    table = _table(f"operations, {size}", work.parts, work.forward, operations)
    table.add_row("forward", operations(work.forward), "")
    table.add_row("backward", operations(work.backward), "")
    if work.recomputed:
        table.add_row(f"recomputed ({recomputation})", operations(work.recomputed), "")
    table.add_row("training step", operations(work.training), "")
    click.echo()
    show_table(table)


def _table(title: str, parts: Mapping[str, int], total: int, text: Any) -> Table:
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    table.add_column(title, min_width=32)
    table.add_column("", justify="right", no_wrap=True)
    table.add_column("share", justify="right", no_wrap=True)
    for name, count in parts.items():
        table.add_row(f"  {name}", text(count), f"{count / total:.1%}")
    return table
