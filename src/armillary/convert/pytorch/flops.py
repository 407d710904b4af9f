"""FLOPs and bytes of PyTorch's operators, from the shapes that an execution trace records.

GEMMs, convolutions and fused attention agree with `torch.utils.flop_counter`; the other families state their
convention in `operators`. Every tensor counts its bytes once for reading and once for writing, regardless of cache
hits and of kernels that read twice.

Operators call operators: ``aten::linear`` is ``aten::addmm`` and views. The work of a call includes that of the
calls inside it, so a sum needs `exclusive`.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from armillary.convert.pytorch.arguments import Arguments
from armillary.convert.pytorch.op_schema import Schema, parse_schema
from armillary.convert.pytorch.operators import Operator, Rule, Work, matmul, memory, rule_of
from armillary.trace.gemm import Gemm

__all__ = ["Arguments", "Work", "exclusive", "family", "gemm", "work"]

NOTHING = Work(0, 0)
_LARGEST = 2**63


def work(name: str, op_schema: str, inputs: Arguments, outputs: Arguments) -> Work | None:
    """Return the work of an operator's call, including the calls inside it.

    Args:
        name: such as ``aten::mm``.
        op_schema: the recorded schema; without one (empty), arguments are taken by position.
        inputs: its arguments, as recorded.
        outputs: its results, as recorded.

    Returns:
        None where the operator is not known, or its recorded arguments make no sense.
    """
    try:
        known = _known(name, op_schema)
        if known is None:
            return None
        schema, rule = known
        # Most calls are views and questions. They need not have their arguments measured.
        if rule is memory.free:
            return NOTHING
        operator = Operator(name, schema, inputs, outputs)
        result = rule(operator)
        # A rule that returns FLOPs alone leaves the bytes to the recorded tensors.
        if not isinstance(result, Work):
            result = Work(result, operator.bytes)
    except (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError):
        return None  # every way in which JSON of the wrong form can fail a rule
    return result if 0 <= result.flops < _LARGEST and 0 <= result.bytes < _LARGEST else None


def gemm(name: str, op_schema: str, inputs: Arguments, outputs: Arguments) -> Gemm | None:
    """Return the GEMM that an operator's call computes, or None; takes the arguments of `work`."""
    try:
        known = _known(name, op_schema)
        return known and matmul.gemm(Operator(name, known[0], inputs, outputs), known[1])
    except (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError):
        return None


@lru_cache(maxsize=1 << 14)
def _known(name: str, op_schema: str) -> tuple[Schema | None, Rule] | None:
    schema = parse_schema(op_schema)
    found = rule_of(name)
    if found:
        return schema, found[1]
    # A view of any library is free, known by its schema rather than its name.
    return (schema, memory.free) if schema and schema.view else None


def family(name: str) -> str | None:
    """Return the family of an operator: ``matmul``, ``convolution``, ``attention``, …; None if it is not known."""
    found = rule_of(name)
    return found[0] if found else None


def exclusive(works: Sequence[Work | None], parents: Sequence[int], names: Sequence[str]) -> list[Work]:
    """Return the work of each call without that of the calls inside it, so that a sum counts nothing twice.

    A known call without known calls inside keeps its work: it is a kernel. One with known calls inside keeps the rest,
    but never less than nothing: ``aten::linear`` keeps nothing, an ``embedding_dense_backward`` that calls ``zero_``
    all but the zeros. A call on distributed tensors records their global shapes and works in a call of the same name
    on this rank's shard: it keeps nothing, nor does any call around it.

    Args:
        works: `work` of every call.
        parents: index of the call around each, negative for none; in any order.
        names: name of every call.
    """
    calls = len(works)
    distributed = _distributed(works, parents, names)
    # Kahn's algorithm from the leaves up: a call's turn comes once all calls inside it have passed on their work.
    waiting = [0] * calls
    for parent in parents:
        if parent >= 0:
            waiting[parent] += 1
    flops_below, bytes_below = [0] * calls, [0] * calls
    shares = [NOTHING] * calls
    ready = [call for call in range(calls) if not waiting[call]]
    while ready:
        call = ready.pop()
        own = works[call]
        flops, size = flops_below[call], bytes_below[call]
        if own is not None:
            share = Work(max(own.flops - flops, 0), max(own.bytes - size, 0))
            share = NOTHING if distributed[call] else share
            shares[call] = share
            # The parent loses what is inside it at any depth, so pass on the sum of both.
            flops += share.flops
            size += share.bytes
        parent = parents[call]
        if parent >= 0:
            flops_below[parent] += flops
            bytes_below[parent] += size
            distributed[parent] |= distributed[call]
            waiting[parent] -= 1
            if not waiting[parent]:
                ready.append(parent)
    return shares


def _distributed(works: Sequence[Work | None], parents: Sequence[int], names: Sequence[str]) -> list[bool]:
    """Return which calls have, directly inside, a call of the same name with less work."""
    found = [False] * len(works)
    for call, (own, above) in enumerate(zip(works, parents, strict=True)):
        if above >= 0 and works[above] is None:  # PythonSubclass, which PyTorch records since 2.8
            above = parents[above]
        whole = works[above] if above >= 0 else None
        if own and whole and names[call] == names[above]:
            # A call of the same work is plain dispatch, such as autograd's; only a shard has less.
            # Operators without FLOPs compare bytes.
            found[above] |= own.flops < whole.flops or (not whole.flops and own.bytes < whole.bytes)
    return found
