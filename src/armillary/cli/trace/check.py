"""`armillary trace check`: find problems that would stop or falsify a simulation."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from armillary.cli.command import Command
from armillary.cli.options import comm_groups_option, json_option
from armillary.cli.outputs import say, working, write_json
from armillary.cli.trace import SUBCOMMANDS
from armillary.cli.trace.group_file import read_group_file

if TYPE_CHECKING:
    from armillary.trace.inputs import Input

_HELP = f"""{SUBCOMMANDS["check"]}

An INPUT is a file, or the prefix of the files PREFIX.<rank>.et of all ranks. With a prefix the ranks are also compared
with each other: sends with receives, and the collectives of every group.
"""


@click.command(
    cls=Command,
    help=_HELP,
    examples=("armillary trace check step", "armillary trace check step --comm-groups groups.json --json -"),
)
@click.argument("inputs", type=click.Path(), nargs=-1, required=True, metavar="INPUT...")
@comm_groups_option
@json_option()
@click.pass_context
def command(
    ctx: click.Context, inputs: tuple[str, ...], comm_groups: Path | None, json_file: Path | None
) -> None:
    """Check, and say whether the traces can be simulated."""
    from armillary.trace.inputs import read_inputs

    with working("checking"):
        found = read_inputs(inputs)
        # Findings of all inputs, before anything is printed.
        findings = [row for each in found for row in _findings(each, comm_groups)]
    errors = sum(row["severity"] == "error" for row in findings)
    verdict = _verdict(errors, len(findings) - errors, all(each.whole for each in found))
    for row in findings:
        # Ranks often share a file's content: named once, with how many.
        alike = f" and {row['ranks'] - 1} alike" if row["ranks"] > 1 else ""
        say(f"{row['file']}{alike}: {row['severity']}: {row['message']}")
    if not findings:
        say(f"{_counted(found)}: nothing wrong")
    say(f"verdict: {verdict}")
    facts = {
        "verdict": verdict,
        "can_be_simulated": not errors,
        "errors": errors,
        "warnings": len(findings) - errors,
        "inputs": [
            {"name": each.name, "ranks": each.trace.n_ranks, "graphs": len(each.trace.graphs)}
            | {"compared": each.whole}
            for each in found
        ],
        "findings": findings,
    }
    write_json(json_file, facts)
    # 2, as the help says: scripts can test it.
    if errors:
        ctx.exit(2)


def _findings(found: Input, groups: Path | None) -> Iterator[dict[str, Any]]:
    """Yield findings as plain values: file, ranks that share the file, severity, node and message."""
    import numpy as np

    from armillary.trace import check
    from armillary.trace.check_ranks import check_ranks

    trace = found.trace
    # bincount: how many ranks share each graph.
    for graph, ranks in zip(trace.graphs, np.bincount(trace.rank_graph).tolist(), strict=True):
        for finding in check(graph):
            yield {"file": graph.source, "ranks": ranks, **vars(finding)}
    # Only whole traces can be compared rank by rank.
    if found.whole:
        for finding in check_ranks(trace, read_group_file(groups, trace.n_ranks)):
            yield {"file": found.name, "ranks": 1, **vars(finding)}


def _verdict(errors: int, warnings: int, compared: bool) -> str:
    # Plural where there are several.
    counts = [f"{n} {what}{'s' * (n > 1)}" for n, what in ((errors, "error"), (warnings, "warning")) if n]
    if errors:
        return f"cannot be simulated: {', '.join(counts)}"
    what = "can be simulated" + (f", with {counts[0]}" if counts else "")
    return what if compared else f"{what}, as far as single files show"


def _counted(found: list[Input]) -> str:
    traces = [each.trace.n_ranks for each in found if each.whole]
    files = len(found) - len(traces)
    texts = [f"{files} file{'s' * (files > 1)}"] if files else []
    if traces:
        ranks = sum(traces)
        texts.append(f"{len(traces)} trace{'s' * (len(traces) > 1)} of {ranks} rank{'s' * (ranks > 1)}")
    return " and ".join(texts)
