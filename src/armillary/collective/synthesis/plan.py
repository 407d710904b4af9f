"""A synthesised schedule as an MSCCL++ execution plan, see `armillary.collective.mscclpp_plan` for the format."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from armillary.collective.mscclpp_write import Message, Protocol, plan_of_messages
from armillary.collective.synthesis.messages import messages_of
from armillary.collective.synthesis.synthesize import SynthesizedSchedule


def to_plan(
    schedule: SynthesizedSchedule, protocol: Protocol = "Simple", name: str = "synthesized"
) -> dict[str, Any]:
    """Return the schedule as what the JSON file of a plan holds: a message goes as soon as what it needs has come.

    Raises:
        InputError: it has too many messages, or a GPU more peers than a thread block has channels.
    """
    messages = messages_of(schedule)
    needs = messages.needs(schedule.per_npu)
    level: list[int] = []
    rounds: defaultdict[int, list[Message]] = defaultdict(list)
    columns = (
        messages.source.tolist(),
        messages.target.tolist(),
        messages.chunk.tolist(),
        messages.adds.tolist(),
    )
    for index, (source, target, chunk, adds) in enumerate(zip(*columns, strict=True)):
        level.append(1 + max((level[need] for need in needs[index]), default=-1))
        rounds[level[-1]].append((source, target, (chunk,), bool(adds)))
    parts = schedule.per_npu if schedule.operation == "all-gather" else schedule.n * schedule.per_npu
    ordered = [rounds[number] for number in sorted(rounds)]
    return plan_of_messages(name, schedule.operation, schedule.n, parts, ordered, protocol)
