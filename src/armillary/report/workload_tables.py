"""Tables about a generated workload."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from armillary.base.units import format_bytes, format_flops
from armillary.trace import Trace
from armillary.workload.generate import assumed_sequence
from armillary.workload.models import Model, default_sequence, parameters
from armillary.workload.plan.numbers import stores
from armillary.workload.plan.ranks import microbatches
from armillary.workload.plan.schema import Plan
from armillary.workload.totals import Totals

if TYPE_CHECKING:
    from rich.table import Table

_AXES = ("tp", "cp", "dp", "pp")


def workload_table(model: Model, plan: Plan, trace: Trace, found: Totals) -> Table:
    """Return model, parameters, axes, batch, classes and operations of one step, or of a whole run of inference."""
    table = _table(header=False)
    table.add_column()
    table.add_column()
    length = assumed_sequence(model, plan)
    assumed = f", sequence {length:,} assumed (--sequence)" if length else ""
    table.add_row("model", f"{model.name}, {parameters(model).total:,} parameters{assumed}")
    table.add_row("ranks", f"{found.ranks:,}{_axes(trace)}")
    # `microbatches` divides by replicas; a parameter server has workers instead.
    if plan.data.sharding != "parameter-server":
        count = microbatches(plan)
        many = "microbatch" if count == 1 else "microbatches"
        each = f"{count:,} {many} of {plan.microbatch:,} for each replica"
        table.add_row("batch", f"{plan.batch:,} {'sequences' if plan.serve else 'samples'}: {each}")
    if plan.serve:
        own, only = plan.serve, {"prefill": ", prefill only", "decode": ", decode only"}
        text = f"prompts of {own.prompt:,} tokens, answers of {own.outputs:,}{only.get(own.phase, '')}"
        table.add_row("inference", text)
        kept = stores(plan)
        head = f" (embedding and head {kept.embeddings})" if kept.embeddings != kept.weights else ""
        numbers = (
            f"compute {plan.numbers.compute}, weights {kept.weights}{head}, keys and values {kept.cache}"
        )
        table.add_row("precision", f"{numbers}, activations {kept.activations}")
    nodes = sorted(nodes for _, nodes in found.classes)
    span = f"{nodes[0]:,}" if nodes[0] == nodes[-1] else f"{nodes[0]:,} to {nodes[-1]:,}"
    many = "class" if len(nodes) == 1 else "classes"
    table.add_row("graphs", f"{len(nodes):,} {many} of ranks, {span} nodes per rank")
    whole = "in all" if plan.serve else "per step"
    table.add_row("operations", f"{_flop(found.flops)} {whole}, {_flop(found.busiest)} on the busiest rank")
    return table


def traffic_table(found: Totals) -> Table:
    """Return the traffic of the communication of one step as a table."""
    table = _table()
    for name in ("communication", "over", "ranks", "calls", "bytes per rank", "of all ranks"):
        table.add_column(name, justify="left" if name in ("communication", "over") else "right")
    for row in found.traffic:
        ranks = "-" if row.ranks is None else f"{row.ranks:,}"
        sizes = format_bytes(row.size), format_bytes(row.total)
        table.add_row(row.operation, row.axes or "all", ranks, f"{row.calls:,.4g}", *sizes)
    return table


def workload_json(model: Model, plan: Plan, trace: Trace, found: Totals) -> dict[str, Any]:
    """Return the same as plain values; the last part of a key is the unit of its number."""
    return {
        "schema": "armillary-workload",
        "version": 1,
        "model": model.name,
        "parameters_count": parameters(model).total,
        "sequence_count": None if plan.serve else plan.sequence or default_sequence(model),
        "sequence_assumed": bool(assumed_sequence(model, plan)),
        "plan": plan.model_dump(exclude_none=True),
        "ranks_count": found.ranks,
        "axes": {axis: trace.grid.size(axis) for axis in trace.grid.axes} if trace.grid else None,
        "classes": [{"ranks_count": ranks, "nodes_count": nodes} for ranks, nodes in found.classes],
        "step_flops": found.flops,
        "busiest_rank_flops": found.busiest,
        "communication": [
            {
                "operation": row.operation,
                "axes": row.axes or None,
                "group_count": row.ranks,
                "calls_count": row.calls,
                "rank_bytes": row.size,
                "total_bytes": row.total,
            }
            for row in found.traffic
        ],
    }


def _axes(trace: Trace) -> str:
    grid = trace.grid
    if grid is None:
        return ""
    text = " = " + " x ".join(f"{axis} {grid.size(axis):,}" for axis in _AXES)
    if grid.size("ep") > 1:
        text += f"; experts etp {grid.size('etp'):,} x ep {grid.size('ep'):,} x edp {grid.size('edp'):,}"
    return text


def _flop(count: float) -> str:
    return format_flops(count).replace("/s", "")


def _table(*, header: bool = True) -> Table:
    from rich import box
    from rich.table import Table

    return Table(box=box.SIMPLE_HEAD if header else None, show_header=header, show_edge=False, pad_edge=False)
