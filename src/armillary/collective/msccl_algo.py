"""MSCCL XML: a collective as programs of thread blocks, read into a graph of sends, receives, copies and reductions.

A file has one ``algo``, a ``gpu`` per rank, in it thread blocks (``tb``), each with one peer to send to and one to
receive from on a channel, and in each of them steps, which run one after the other:

======  ==================================================
s       send ``src``
r       receive into ``dst``
rcs     receive into ``dst``, send that on
rrc     receive, add ``src``, keep the sum in ``dst``
rrs     receive, add ``src``, send the sum on, keep nothing
rrcs    receive, add ``src``, keep the sum in ``dst``, send it on
cpy     copy ``src`` to ``dst``
re      add ``src`` to ``dst``
nop     only wait
======  ==================================================

A step also waits for step ``deps`` of thread block ``depid`` of its gpu (-1: for none). Offsets and counts are in
chunks of the buffers i(nput), o(utput) and s(cratch); a loop moves ``nchunksperloop`` chunks.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, replace
from typing import Literal

from armillary.base.errors import InputError, nearest, one_of
from armillary.base.hints import misspelt
from armillary.collective.msccl_xml import Element

Kind = Literal["send", "recv", "reduce", "copy", "wait"]
Span = tuple[str, int]
"""First chunk of what an action reads or writes: buffer (i, o, s) and offset."""

STEPS: dict[str, tuple[Kind, ...]] = {
    "s": ("send",),
    "r": ("recv",),
    "rcs": ("recv", "send"),
    "rrc": ("recv", "reduce"),
    "rrs": ("recv", "reduce", "send"),
    "rrcs": ("recv", "reduce", "send"),
    "cpy": ("copy",),
    "re": ("reduce",),
    "nop": ("wait",),
}
"""Step type -> what it does, in order."""

COLLECTIVES = {
    "allreduce": "all-reduce",
    "allgather": "all-gather",
    "reducescatter": "reduce-scatter",
    "reduce_scatter": "reduce-scatter",
    "alltoall": "all-to-all",
    "broadcast": "broadcast",
    "reduce": "reduce",
    "gather": "gather",
    "scatter": "scatter",
}
"""Value of ``coll`` -> operation."""
PROTOCOLS = ("Simple", "LL", "LL128")
"""Values of ``proto``, which changes no time here."""
_ATTRIBUTES = {
    "algo": (
        "ngpus",
        "coll",
        "nchunksperloop",
        "inplace",
        "name",
        "proto",
        "nchannels",
        "redop",
        "minBytes",
        "maxBytes",
    ),
    "gpu": ("id", "i_chunks", "o_chunks", "s_chunks"),
    "tb": ("id", "send", "recv", "chan"),
    "step": ("s", "type", "srcbuf", "srcoff", "dstbuf", "dstoff", "cnt", "depid", "deps", "hasdep"),
}


@dataclass(frozen=True)
class Action:
    """One thing that a step does; `needs` and `partner` are indices into `Algo.actions`.

    `needs` are actions of the same gpu that come first; `partner` is the other end of a message (else -1).
    """

    kind: Kind
    gpu: int
    block: int
    step: int
    type: str
    line: int
    source: Span
    target: Span
    count: int
    peer: int
    channel: int
    needs: tuple[int, ...]
    partner: int = -1


@dataclass(frozen=True)
class Algo:
    """A collective algorithm of `n` gpus that moves D in `chunks` parts (for an all-gather, all that is gathered).

    `actions` are ordered by gpu, thread block and step; `buffers` has the number of chunks by gpu and buffer name.
    """

    name: str
    operation: str
    n: int
    chunks: int
    in_place: bool
    actions: tuple[Action, ...]
    buffers: tuple[dict[str, int], ...]
    file: str

    @property
    def parts(self) -> tuple[int, int]:
        """Size of a chunk as a fraction (numerator, denominator) of D; see `rounds` for what D is."""
        return (self.n if self.operation == "all-gather" else 1, self.chunks)

    def order(self) -> list[int]:
        """Return the actions in an order in which each can run: after what it needs, a receive after its send.

        Raises:
            InputError: some wait for each other.
        """
        waits = [len(a.needs) + (a.kind == "recv") for a in self.actions]
        after: list[list[int]] = [[] for _ in self.actions]
        # A receive also waits for its send, in another gpu.
        for index, action in enumerate(self.actions):
            for need in (*action.needs, *((action.partner,) if action.kind == "recv" else ())):
                after[need].append(index)
        # Kahn's algorithm: what never becomes ready is on, or behind, a cycle.
        ready = [index for index, wait in enumerate(waits) if not wait]
        for index in ready:  # grows
            for other in after[index]:
                waits[other] -= 1
                if not waits[other]:
                    ready.append(other)
        if len(ready) < len(waits):
            stuck = next(a for a, wait in zip(self.actions, waits, strict=True) if wait)
            raise InputError(
                f"{self.file}, line {stuck.line}: step {stuck.step} of thread block {stuck.block} of gpu {stuck.gpu} "
                "never runs: it is part of, or behind, a circle of steps that wait for each other"
            )
        return ready


def algo_of(root: Element, file: str) -> Algo:
    """Return the algorithm of an ``algo`` element.

    Raises:
        InputError: something in it is wrong; the message has the line.
    """
    n = root.number("ngpus", 2)
    _check_attributes(root)
    if (proto := root.text("proto", PROTOCOLS[0])) not in PROTOCOLS:
        raise root.error(f"proto='{proto}': expected {one_of(PROTOCOLS)}{nearest(proto, PROTOCOLS)}")
    coll = root.text("coll")
    if coll not in COLLECTIVES:
        raise root.error(f"coll='{coll}': expected {one_of(COLLECTIVES)}{nearest(coll, COLLECTIVES)}")
    chunks = root.number("nchunksperloop", 1)
    in_place = bool(root.number("inplace", 0, default=0, below=2))
    gpus: dict[int, Element] = {}
    for gpu in root.children:
        if gpus.setdefault(gpu.number("id", 0, below=n), gpu) is not gpu:
            raise gpu.error(f"id='{gpu.text('id')}' is there twice")
    if len(gpus) < n:
        missing = next(g for g in range(n) if g not in gpus)
        raise root.error(f"ngpus='{n}', but gpu {missing} is missing")
    buffers = tuple(
        {name: gpus[g].number(f"{name}_chunks", 0, default=0) for name in "ios"} for g in range(n)
    )
    actions: list[Action] = []
    for g in range(n):
        limit = dict(buffers[g])
        # In place, input and output are one buffer, as long as the longer of both.
        if in_place:
            limit["i"] = limit["o"] = max(limit["i"], limit["o"])
        _read_gpu(actions, gpus[g], g, n, limit)
    algo = Algo(
        root.text("name", ""), COLLECTIVES[coll], n, chunks, in_place, _paired(actions, file), buffers, file
    )
    # Called for its error only.
    algo.order()
    return algo


def _check_attributes(element: Element) -> None:
    """Refuse attributes that are a typo away from one that is read; others may be of a newer MSCCL."""
    known = _ATTRIBUTES[element.name]
    for key in element.attributes:
        if key not in known and (hint := misspelt(key, known)):
            raise element.error(f"has an unknown attribute '{key}'{hint}")
    for child in element.children:
        _check_attributes(child)


def _read_gpu(actions: list[Action], gpu: Element, g: int, n: int, limit: dict[str, int]) -> None:
    """Append the actions of one gpu."""
    last: dict[tuple[int, int], int] = {}
    waits: list[tuple[int, tuple[int, int], Element]] = []
    for tb in gpu.children:
        block = tb.number("id", 0)
        if (block, 0) in last:
            raise tb.error(f"id='{block}' is there twice in gpu {g}")
        for number, step in enumerate(tb.children):
            if step.number("s", 0) != number:
                raise step.error(f"s='{step.text('s')}': expected {number}, steps are numbered in order")
            new = _read_step(step, tb, g, n, limit)
            on = (step.number("depid", -1, default=-1), step.number("deps", -1, default=-1))
            if on[0] >= 0:
                waits.append((len(actions), on, step))
            for action in new:  # each after the one before, in this step or the last
                # Steps of a thread block run in order: only its very first action waits for nothing.
                needs = (len(actions) - 1,) if number or action is not new[0] else ()
                actions.append(replace(action, block=block, step=number, needs=needs))
            last[block, number] = len(actions) - 1
    # Dependencies may point to thread blocks further down in the file: resolved when all are read.
    for index, on, step in waits:
        if on not in last:
            raise step.error(f"depid='{on[0]}' deps='{on[1]}': gpu {g} has no such thread block and step")
        both = dict.fromkeys((*actions[index].needs, last[on]))
        actions[index] = replace(actions[index], needs=tuple(both))


def _read_step(step: Element, tb: Element, g: int, n: int, limit: dict[str, int]) -> list[Action]:
    """Return what one step does, without dependencies."""
    kind = step.text("type")
    if kind not in STEPS:
        raise step.error(f"type='{kind}': expected {one_of(STEPS)}{nearest(kind, STEPS)}")
    count = step.number("cnt", 1 if kind != "nop" else 0, default=0 if kind == "nop" else None)
    reads = kind in ("s", "rrc", "rrs", "rrcs", "cpy", "re")
    writes = kind in ("r", "rcs", "rrc", "rrcs", "cpy", "re")
    source = _span(step, "src", count, limit) if reads else ("", 0)
    target = _span(step, "dst", count, limit) if writes else ("", 0)
    found = []
    for part in STEPS[kind]:
        peer = -1
        if part in ("send", "recv"):
            peer = tb.number(part, -1, below=n)
            if peer in (-1, g):
                raise step.error(f"type='{kind}': its <tb> has {part}='{peer}', expected another gpu")
        channel = tb.number("chan", 0, default=0)
        found.append(Action(part, g, 0, 0, kind, step.line, source, target, count, peer, channel, ()))
    return found


def _span(step: Element, end: str, count: int, limit: dict[str, int]) -> Span:
    buffer, offset = step.text(f"{end}buf"), step.number(f"{end}off", 0)
    if buffer not in limit:
        raise step.error(f"{end}buf='{buffer}': expected {one_of(limit)}")
    if offset + count > limit[buffer]:
        raise step.error(
            f"{end}off='{offset}' cnt='{count}': buffer {buffer} of this gpu has {limit[buffer]} chunks"
        )
    return buffer, offset


def _paired(actions: list[Action], file: str) -> tuple[Action, ...]:
    """Give the k-th send of a connection (gpu, peer, channel) the k-th receive as its partner."""
    ends: defaultdict[tuple[int, int, int], tuple[list[int], list[int]]] = defaultdict(lambda: ([], []))
    for index, a in enumerate(actions):
        if a.kind == "send":
            ends[a.gpu, a.peer, a.channel][0].append(index)
        elif a.kind == "recv":
            ends[a.peer, a.gpu, a.channel][1].append(index)
    for (source, target, channel), (sends, receives) in ends.items():
        way = f"from gpu {source} to gpu {target} on channel {channel}"
        for side in (sends, receives):
            # Two blocks on one connection would make the order of messages undefined.
            other = next((i for i in side if actions[i].block != actions[side[0]].block), None)
            if other is not None:
                raise InputError(
                    f"{file}, line {actions[other].line}: two thread blocks have messages {way}, expected one"
                )
        if len(sends) != len(receives):
            longer = max(sends, receives, key=len)
            raise InputError(
                f"{file}, line {actions[longer[min(len(sends), len(receives))]].line}: {len(sends)} sends but "
                f"{len(receives)} receives {way}"
            )
        for send, receive in zip(sends, receives, strict=True):
            if actions[send].count != actions[receive].count:
                raise InputError(
                    f"{file}, line {actions[receive].line}: receives cnt='{actions[receive].count}', but line "
                    f"{actions[send].line} sends cnt='{actions[send].count}'"
                )
            actions[send] = replace(actions[send], partner=receive)
            actions[receive] = replace(actions[receive], partner=send)
    return tuple(actions)
