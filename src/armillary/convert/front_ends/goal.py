"""GOAL schedules of LogGOPSim and ATLAHS: sends, receives and computations of every rank (text or binary)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from armillary.base.errors import InputError
from armillary.base.units import format_count
from armillary.convert.converted import Converted


def convert(inputs: Sequence[Path], *, loggops: str = "") -> Converted:
    """Return a rank for each of the schedule; a line says when its hosts end by LogGOPSim's model.

    Receives from any rank, or of any tag, take what they take in that model.

    Args:
        inputs: one file.
        loggops: Parameters of LogGOPSim's model, e.g. L=500,G=0.02.

    Raises:
        InputError: the file cannot be read or is no schedule, or it never ends; names the line.
    """
    from armillary.convert.goal.loggops import Model, simulate, told
    from armillary.convert.goal.operation import CPU, NIC, Operation
    from armillary.convert.goal.schedule import read_schedule
    from armillary.trace import GraphBuilder, NodeType, Trace

    if len(inputs) != 1:
        raise InputError(f"{len(inputs)} GOAL schedules, expected one: it holds the operations of all ranks")
    path = Path(inputs[0])
    model = Model.of(loggops)
    ranks = read_schedule(path)
    outcome = simulate(ranks, model, str(path))

    def after(operations: Sequence[Operation], each: Operation) -> list[int]:
        # What starts after the start of another waits for what that one waits for, which may be a start, too.
        found, seen, waiting = set(each.ended), set[int](), list(each.started)
        while waiting:
            if (number := waiting.pop()) not in seen:
                seen.add(number)
                found |= set(operations[number].ended)
                waiting += operations[number].started
        return sorted(found)

    # A message goes by its own number: a tag may be a wildcard, and receives take messages out of order.
    tags = {sent: tag for tag, sent in enumerate(outcome.took.values())}
    graphs = []
    for rank, operations in enumerate(ranks):
        builder = GraphBuilder(rank=rank)
        for number, each in enumerate(operations):
            if each.kind == "calc":
                time = [
                    ("is_cpu_op", "bool", True),
                    ("tid", "int64", each.cpu),
                    ("duration_ns", "int64", each.amount),
                ]
                length = (each.amount + 500) // 1000
                builder.add(f"calc {number}", NodeType.COMP_NODE, time, duration_micros=length)
            elif each.kind == "send":
                builder.send(each.peer, max(each.amount, 1), tags.get((rank, number), 0))
            else:
                sent = outcome.took[rank, number]
                size = max(ranks[sent[0]][sent[1]].amount, 1)
                builder.recv(sent[0], size, tags[sent])
            # So that a schedule made of the trace has them again.
            builder.nodes[-1].attrs.append((CPU, "int64", each.cpu))
            if each.nic:
                builder.nodes[-1].attrs.append((NIC, "int64", each.nic))
        for number, each in enumerate(operations):
            builder.wait_for(number, after=after(operations, each))
        graphs.append(builder.graph(f"{path}, rank {rank}"))
    warnings = []
    if lost := sum(each.kind == "send" for operations in ranks for each in operations) - len(tags):
        raise InputError(f"{path}: expected a receive for each send; sends without one: {format_count(lost)}")
    # Traces have no empty messages; in LogGOPSim's model they take as long as those of a byte.
    if empty := sum(each.kind == "send" and not each.amount for operations in ranks for each in operations):
        warnings.append(f"messages of 0 bytes, which have 1 byte in the trace: {format_count(empty)}")
    if any(each.started for operations in ranks for each in operations):
        warnings.append("irequires: the operation waits for what the other one waits for, not for its start")
    if any(each.cpu or each.nic for operations in ranks for each in operations if each.kind != "calc"):
        warnings.append("cpu and nic of messages have no effect in a run of the trace")
    other = sum(
        ranks[rank][number].amount != ranks[sender][sent].amount
        for (rank, number), (sender, sent) in outcome.took.items()
    )
    if other:
        warnings.append(
            f"receives whose size is not that of their message, which counts: {format_count(other)}"
        )
    facts = {"loggops_ns": list(outcome.ends)}
    return Converted(
        Trace.from_ranks(graphs), warnings=tuple(warnings), facts=facts, statements=(told(model, outcome),)
    )
