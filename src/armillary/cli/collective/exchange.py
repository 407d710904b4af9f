"""`armillary collective exchange`: all-to-alls of tokens for experts, for given choices of the tokens."""

from __future__ import annotations

from pathlib import Path

import click

from armillary.cli.collective import SUBCOMMANDS, bytes_of
from armillary.cli.command import Command, option
from armillary.cli.options import json_option, machine_argument
from armillary.cli.outputs import say, show_table, working, write_json

_HELP = f"""{SUBCOMMANDS["exchange"]}

Each rank of MACHINE has the same number of experts. Tokens choose their experts at random; or as often as
--expert-counts says, a CSV file with columns layer, expert and count, as engines record them; or as --routing says, a
CSV file with a row for each token, the columns rank and experts (numbers separated by blanks), and optionally count.
The exchange is one direction, to the experts; the reverse exchange returns their outputs.
"""

_WHAT, _HOW = "What is exchanged", "How it is simulated"


@click.command(
    cls=Command,
    help=_HELP,
    examples=(
        "armillary collective exchange 4xdgx-h100 --experts 256 --choices 8 --tokens 512 --skew 0.5",
        "armillary collective exchange 4xdgx-h100 --experts 256 --expert-counts counts.csv --layer 3",
        "armillary collective exchange 2xdgx-h100 --experts 64 --routing tokens.csv --token-size 7KiB",
    ),
)
@machine_argument(required=True)
@option(
    "--experts",
    heading=_WHAT,
    type=click.IntRange(min=2),
    required=True,
    metavar="N",
    help="Total number of experts.",
)
@option(
    "--routing",
    heading=_WHAT,
    type=click.Path(path_type=Path),
    metavar="CSV",
    help="Experts chosen by each token, instead of a random choice.",
)
@option(
    "--expert-counts",
    "counts",
    heading=_WHAT,
    type=click.Path(path_type=Path),
    metavar="CSV",
    help="How often each expert was chosen, instead of a law.",
)
@option(
    "--layer",
    heading=_WHAT,
    type=click.IntRange(min=0),
    metavar="N",
    help="Which of its layers, from 0.  [default: the most uneven]",
)
@option(
    "--tokens",
    heading=_WHAT,
    type=click.IntRange(min=1),
    metavar="N",
    help="Tokens per rank.  [default: 512]",
)
@option(
    "--choices",
    heading=_WHAT,
    type=click.IntRange(min=1),
    metavar="N",
    help="Experts per token.  [default: 8]",
)
@option(
    "--skew",
    heading=_WHAT,
    type=click.FloatRange(min=0, max=10),
    metavar="X",
    help="Exponent of the Zipf distribution over the experts.  [default: 0]",
)
@option(
    "--seed",
    heading=_WHAT,
    type=click.IntRange(min=0, max=2**63 - 1),
    metavar="N",
    help="Random seed.  [default: 0]",
)
@option(
    "--token-size",
    heading=_WHAT,
    default="7168 B",
    show_default=True,
    metavar="SIZE",
    help="Bytes of a token.",
)
@option(
    "--chunks", heading=_HOW, type=click.IntRange(1, 1024), default=8, show_default=True, metavar="N",
    help="Chunks in which the steps of a schedule are pipelined.",
)  # fmt: skip
@option(
    "--network-model",
    heading=_HOW,
    default="flow",
    show_default=True,
    metavar="NAME",
    help="How messages move through the network.",
)
@json_option("Write the result as JSON, in bytes and ns.")
def command(
    machine: str,
    experts: int,
    routing: Path | None,
    counts: Path | None,
    layer: int | None,
    tokens: int | None,
    choices: int | None,
    skew: float | None,
    seed: int | None,
    token_size: str,
    chunks: int,
    network_model: str,
    json_file: Path | None,
) -> None:
    """Simulate and print."""
    from rich.table import Table

    from armillary.base.units import format_bytes, format_time
    from armillary.collective.exchange import counted, drawn
    from armillary.explore.exchange import exchange, read_routing
    from armillary.platform import load_platform
    from armillary.serving.routed import read_counts

    draws = {
        "--tokens": tokens,
        "--choices": choices,
        "--skew": skew,
        "--seed": seed,
        "--expert-counts": counts,
    }
    if layer is not None and not counts:
        raise click.UsageError("--layer needs --expert-counts")
    if counts and skew is not None:
        raise click.UsageError("--expert-counts and --skew exclude each other")
    if routing and (given := [name for name, value in draws.items() if value is not None]):
        raise click.UsageError(f"--routing and {given[0]} exclude each other")
    platform, size = load_platform(machine), bytes_of("--token-size", token_size)
    if routing:
        chosen = read_routing(routing, platform.npus, experts)
    elif counts:
        layers = read_counts(counts, experts)
        if layer is not None and layer >= len(layers):
            raise click.UsageError(
                f"--layer {layer}: {counts} has {len(layers)} layers, expected 0 to {len(layers) - 1}"
            )
        uneven = max(layers, key=lambda each: max(each) / sum(each)) if layer is None else layers[layer]
        chosen = counted(platform.npus, tokens or 512, choices or 8, uneven, seed or 0)
    else:
        chosen = drawn(platform.npus, experts, tokens or 512, choices or 8, skew or 0.0, seed or 0)
    with working("simulating"):
        found = exchange(platform, chosen, size, chunks, network_model)
    for text in platform.topology.assumed if platform.topology else ():
        say(f"Assumed: {text}")
    say(
        f"{chosen.tokens:,} tokens of {format_bytes(size)} on {platform.npus} NPUs in nodes of {found.node}; "
        f"lower bound {format_time(found.bound)}: {found.binds}"
    )
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("schedule", "time", "bound ÷ time", "most that a rank sends to other nodes"):
        table.add_column(name, justify="left" if name == "schedule" else "right")
    for each in found.schedules:
        table.add_row(
            each.name, format_time(each.time), f"{found.bound / each.time:.3f}", format_bytes(each.busiest)
        )
    show_table(table)
    for warning in platform.warnings:
        say(f"warning: {warning}", err=True)
    schedules = [{"name": s.name, "time_ns": s.time, "busiest_bytes": s.busiest} for s in found.schedules]
    write_json(
        json_file,
        {
            "tokens": chosen.tokens,
            "node": found.node,
            "bound_ns": found.bound,
            "binds": found.binds,
            "schedules": schedules,
        },
    )
