"""MSCCL++ execution plans: a collective as the remote stores, signals and sums of every GPU."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from armillary.base.errors import InputError
from armillary.convert.converted import Converted


def convert(
    inputs: Sequence[Path], *, size: str = "1 MiB", memory_bandwidth: str = "2 TB/s", sync: str = "0 ns"
) -> Converted:
    """Return one graph per GPU: its messages, signals, copies and sums.

    Args:
        inputs: one file.
        size: Bytes of the collective, as in comm_size: the contribution of one rank to an all-gather, all of
            its data for other operations; "1 MiB".
        memory_bandwidth: Memory bandwidth of the copies and sums of a thread block.
        sync: Time of a barrier or semaphore between thread blocks.

    Raises:
        InputError: the file cannot be read, is no such plan, or never ends; names the line.
    """
    from armillary.base.units import parse_bandwidth, parse_bytes, parse_time
    from armillary.collective.mscclpp_plan import COLLECTIVES
    from armillary.collective.mscclpp_read import read_plan
    from armillary.collective.mscclpp_run import check_plan
    from armillary.collective.mscclpp_traces import plan_graphs
    from armillary.trace import Trace

    if len(inputs) != 1:
        raise InputError(f"{len(inputs)} MSCCL++ plans, expected one: it holds the programs of all GPUs")
    # Whichever option is being parsed when ValueError is raised; the message names it.
    option = "--size"
    try:
        count = parse_bytes(size)
        option = "--memory-bandwidth"
        bandwidth = parse_bandwidth(memory_bandwidth)
        option = "--sync"
        between = parse_time(sync)
    except ValueError as error:
        raise InputError(f"{option}: {error}") from error
    plan = read_plan(inputs[0])
    graphs = plan_graphs(plan, count, bandwidth, between)
    warnings = list(plan.warnings)
    if count % plan.alignment:
        warnings.append(
            f"{inputs[0]}: {count} bytes are not whole units of {plan.alignment}: {count % plan.alignment} bytes are "
            "not moved"
        )
    least, most = plan.sizes
    if not least <= count <= most:
        warnings.append(
            f"{inputs[0]}: {count} bytes: MSCCL++ takes this plan for {least} to {most} (min_message_size, "
            "max_message_size)"
        )
    if plan.operation in COLLECTIVES.values():
        try:
            check_plan(plan)
        except InputError as error:
            warnings.append(str(error))
    facts = {"plan": plan.name, "operation": plan.operation, "protocol": plan.protocol}
    return Converted(Trace.from_ranks(graphs), warnings=tuple(warnings), facts=facts)
