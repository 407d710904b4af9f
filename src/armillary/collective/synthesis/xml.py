"""A synthesised schedule as MSCCL XML, see `armillary.collective.msccl_algo` for the format."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from armillary.base.text import xml_attribute
from armillary.collective.synthesis.messages import messages_of
from armillary.collective.synthesis.synthesize import SynthesizedSchedule

_COLL = {"all-reduce": "allreduce", "all-gather": "allgather", "reduce-scatter": "reducescatter"}


def to_msccl(schedule: SynthesizedSchedule, name: str = "synthesized") -> str:
    """Return the schedule as MSCCL XML, in place: a thread block per GPU, peer and direction, in the order of time.

    Raises:
        InputError: it has too many messages.
    """
    messages = messages_of(schedule)
    needs = messages.needs(schedule.per_npu)
    n, chunks = schedule.n, schedule.n * schedule.per_npu
    ends = list(zip(messages.source.tolist(), messages.target.tolist(), strict=True))
    blocks: list[dict[tuple[int, bool], int]] = [{} for _ in range(n)]
    for source, target in dict.fromkeys(ends):
        blocks[source][target, True] = len(blocks[source])
        blocks[target][source, False] = len(blocks[target])
    steps: defaultdict[tuple[int, int], list[str]] = defaultdict(list)
    received: list[tuple[int, int]] = []
    buffer = "o" if schedule.operation == "all-gather" else "i"
    awaited = {need for index in range(len(ends)) for need in needs[index]}
    for index, (source, target) in enumerate(ends):
        chunk, adds = int(messages.chunk[index]), bool(messages.adds[index])
        send = blocks[source][target, True]
        mine = steps[source, send]
        waits = [received[need] for need in needs[index]]
        # A step waits for one other only: further ones get a nop each.
        for block, step in waits[:-1]:
            mine.append(_step(len(mine), "nop", "i", 0, 0, block, step, False))
        block, step = waits[-1] if waits else (-1, -1)
        mine.append(_step(len(mine), "s", buffer, chunk, 1, block, step, False))
        receive = blocks[target][source, False]
        theirs = steps[target, receive]
        received.append((receive, len(theirs)))
        theirs.append(_step(len(theirs), "rrc" if adds else "r", buffer, chunk, 1, -1, -1, index in awaited))
    share = {"all-gather": (schedule.per_npu, chunks), "reduce-scatter": (chunks, schedule.per_npu)}
    sizes = share.get(schedule.operation, (chunks, chunks))
    head = (
        f'<algo name={xml_attribute(name)} proto="Simple" nchannels="1" nchunksperloop="{chunks}" ngpus="{n}" '
        f'coll="{_COLL[schedule.operation]}" inplace="1">'
    )
    return "\n".join([head, *_gpus(n, sizes, blocks, steps), "</algo>", ""])


def _step(
    number: int, kind: str, buffer: str, chunk: int, count: int, block: int, step: int, awaited: bool
) -> str:
    where = f'srcbuf="{buffer}" srcoff="{chunk}" dstbuf="{buffer}" dstoff="{chunk}" cnt="{count}"'
    return f'<step s="{number}" type="{kind}" {where} depid="{block}" deps="{step}" hasdep="{int(awaited)}"/>'


def _gpus(
    n: int,
    sizes: tuple[int, int],
    blocks: list[dict[tuple[int, bool], int]],
    steps: dict[tuple[int, int], list[str]],
) -> Iterator[str]:
    for gpu in range(n):
        yield f'  <gpu id="{gpu}" i_chunks="{sizes[0]}" o_chunks="{sizes[1]}" s_chunks="0">'
        for (peer, sends), block in blocks[gpu].items():
            send, receive = (peer, -1) if sends else (-1, peer)
            yield f'    <tb id="{block}" send="{send}" recv="{receive}" chan="0">'
            yield from (f"      {step}" for step in steps[gpu, block])
            yield "    </tb>"
        yield "  </gpu>"
