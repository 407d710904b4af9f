"""GEMMs with weights, and the operators around them: norms, activations, the feed-forward block.

GEMMs are divided over ranks as Megatron-LM divides them (arXiv 1909.08053, 2205.05198).

In a column-parallel GEMM Y = X·W a rank has some columns of W and the whole X; in a row-parallel one it has some rows
of W, and its Y is a term of a sum. With sequence parallelism the column-parallel X is gathered, and gathered once more
for the gradient of W while that of X is computed; the row-parallel Y is reduce-scattered.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from armillary.trace import CollectiveType
from armillary.trace.gemm import Gemm
from armillary.workload.layers.block import Block, Result
from armillary.workload.layers.layer import Precision, Step
from armillary.workload.layers.shard import Shard
from armillary.workload.plan.numbers import stored
from armillary.workload.plan.schema import ELEMENT


def gather(name: str, axes: str, size: int, after: tuple[str, ...] | None = None) -> Step:
    """Return an all-gather; `size` is of what this rank contributes."""
    return Step(name, collective=CollectiveType.ALL_GATHER, axes=axes, size=size, after=after)


def scatter(name: str, axes: str, size: int) -> Step:
    """Return a reduce-scatter; `size` is of this rank's whole input."""
    return Step(name, collective=CollectiveType.REDUCE_SCATTER, axes=axes, size=size)


def reduce(name: str, axes: str, size: int) -> Step:
    """Return an all-reduce."""
    return Step(name, collective=CollectiveType.ALL_REDUCE, axes=axes, size=size)


def gemms(
    shard: Shard,
    m: int,
    k: int,
    n: int,
    *,
    count: int = 1,
    precision: Precision | None = None,
    weights: Precision | None = None,
) -> tuple[Step, Step, Step]:
    """Return the kernels of Y = X·W: forward ``gemm``, ``input`` gradient, ``weight`` gradient.

    The last adds to what other microbatches left, and waits for ``input``.

    Args:
        shard: The share of this rank.
        m: Rows of X (of all weights together).
        k: Columns of X.
        n: Columns of Y.
        count: How many weights, each for some of the rows (a grouped GEMM).
        precision: Absent: that of the plan.
        weights: As which inference reads them; absent: as the plan says, or with a `precision` as that.
    """
    held = weights or precision or (shard.stores.weights if shard.stores else None)
    precision = precision or shard.compute
    flops, operand = 2 * m * k * n, ELEMENT[precision]
    x, w, y = m * k, count * k * n, m * n
    # Inference reads weights with their scales; training keeps operands in the type of the GEMM.
    read = stored(x, precision) + stored(w, held) if shard.stores and held else (x + w) * operand
    # Rows of a group on average: groups are uneven, and kernels pad them.
    shape = Gemm(-(-m // max(count, 1)), n, k, count)
    # Transformer Engine calls cuBLAS for each weight of a group.
    looped = count if count > 1 else 0
    return (
        Step("gemm", flops, read + y * shard.element, precision, gemms=(shape,), looped=looped),
        Step(
            "input",
            flops,
            (y + w) * operand + x * shard.element,
            precision,
            gemms=(shape.left(),),
            looped=looped,
        ),
        Step(
            "weight",
            flops,
            (x + y) * operand + w * (2 * shard.gradient if shard.adds else shard.element),
            precision,
            # The gradient of the input first, as the layer below waits for it.
            after=("input",),
            gemms=(shape.right(),),
            looped=looped,
        ),
    )


def replicated(
    shard: Shard,
    name: str,
    k: int,
    n: int,
    *,
    precision: Precision | None = None,
    parameters: int | None = None,
) -> Block:
    """Return a projection whose weight every rank of tp has whole, of the tokens of the residual."""
    forward, back, weight = gemms(shard, shard.own, k, n, precision=precision)
    held = k * n if parameters is None else parameters
    return Block(
        name,
        (forward,),
        (back,),
        (weight,),
        {"dp+cp": held},
        # Each rank sees only its own tokens then, so its gradient is a part of the sum over tp.
        held * shard.sequence,
        saved=shard.own * k * ELEMENT[precision or shard.compute],
        operand=shard.own * k * ELEMENT[precision or shard.compute],
        working=shard.own * (2 * k + n) * shard.element,
        back=shard.own * (k + n) * shard.element,
    )


def column(
    shard: Shard,
    name: str,
    k: int,
    n: int,
    *,
    bias: bool = False,
    keep: bool = True,
    beside: int = 0,
    precision: Precision | None = None,
    weights: Precision | None = None,
    parameters: int | None = None,
    results: Mapping[str, int] | None = None,
    whole: bool = False,
) -> Block:
    """Return a column-parallel projection.

    Args:
        shard: The share of this rank.
        name: Of the block.
        k: Inputs.
        n: Outputs of this rank.
        bias: Whether it has one.
        keep: Whether no other block keeps its input.
        beside: Inputs that are gathered with the others, but not multiplied.
        precision: Absent: that of the plan.
        weights: See `gemms`.
        parameters: Absent: those of the GEMM and bias.
        results: Outputs that recomputation may keep -> their columns.
        whole: Whether it is one GEMM in any plan.
    """
    m, element = shard.tokens, shard.element
    gemm, back, weight = gemms(shard, m, k, n, precision=precision, weights=weights)
    added: list[Step] = []
    if shard.separate and not whole and results and len(results) > 1:
        # Where each GEMM casts its own operand, one cast would be timed several times.
        if gemm.precision not in ("fp8", "fp4") or shard.recipe:
            gemm, back, weight = _apart(gemm, back, weight, tuple(results.values()))
        # A kernel for each sum, or more gradients for the kernel behind.
        more = (len(results) - 1) * (1 if shard.compiled else 3)
        added = [Step("sum", bytes=more * m * k * element)]
    forward, backward = [gemm], [back, *added]
    if shard.sequence:
        forward.insert(0, gather("gather", "tp", shard.own * (k + beside) * element))
        if shard.overlap:
            forward = _beside(forward)
        backward = [
            # This gather is for the gradient of the weight only, so it overlaps the GEMM of the input's gradient.
            gather("gather", "tp", shard.own * k * element, after=("",)),
            replace(back, after=("",)),
            *(replace(each, after=("input",)) for each in added),
            scatter("scatter", "tp", m * (k + beside) * element),
        ]
        weight = replace(weight, after=("input", "gather"))
    elif shard.tp > 1:
        backward.append(reduce("reduce", "tp", m * (k + beside) * element))
    return Block(
        name,
        tuple(forward),
        tuple(backward),
        (weight,),
        {"dp+cp": k * n + n * bias if parameters is None else parameters},
        # The input before the gather: it is gathered again rather than kept whole.
        saved=shard.own * k * ELEMENT[precision or shard.compute] if keep else 0,
        operand=shard.own * k * ELEMENT[precision or shard.compute] if keep else 0,
        for_weights=("gather",),
        working=m * (2 * k + n) * element,
        results=made(shard, m, results or {}),
        # Gradients of output and input; with sequence parallelism the input, gathered, and its scattered gradient.
        back=(m * (k + n) + shard.sequence * (m + shard.own) * k) * element,
    )


def _apart(forward: Step, back: Step, weight: Step, columns: tuple[int, ...]) -> tuple[Step, Step, Step]:
    """Return the kernels of `gemms` with a GEMM for each of these groups of columns."""
    [whole] = forward.gemms
    shapes = tuple(whole._replace(n=each) for each in columns)
    # Each reads the shared operand, or writes a gradient of it.
    more = (len(shapes) - 1) * whole.m * whole.k * ELEMENT[forward.precision]
    return (
        replace(forward, bytes=forward.bytes + more, gemms=shapes),
        replace(back, bytes=back.bytes + more, gemms=tuple(each.left() for each in shapes)),
        replace(weight, bytes=weight.bytes + more, gemms=tuple(each.right() for each in shapes)),
    )


def made(shard: Shard, rows: int, columns: Mapping[str, int]) -> dict[str, Result]:
    """Return the results of a GEMM with so many columns each."""
    return {name: Result(each, rows * each * shard.element) for name, each in columns.items()}


def row(shard: Shard, name: str, k: int, n: int, *, bias: bool = False) -> Block:
    """Return a row-parallel projection of `k` inputs on this rank to `n` outputs."""
    m, element = shard.tokens, shard.element
    gemm, back, weight = gemms(shard, m, k, n)
    forward, backward = [gemm], [back]
    if shard.sequence:
        forward.append(scatter("scatter", "tp", m * n * element))
        backward.insert(0, gather("gather", "tp", shard.own * n * element))
        if shard.overlap:
            forward, backward = _beside(forward), _beside(backward)
    elif shard.tp > 1:
        forward.append(reduce("reduce", "tp", m * n * element))
    return Block(
        name,
        tuple(forward),
        tuple(backward),
        (weight,),
        {"dp+cp": k * n + n * bias},
        # The bias is added after the scatter, so each rank has the gradient of its own tokens only.
        n * (bias and shard.sequence),
        saved=m * k * shard.operand,
        operand=m * k * shard.operand,
        working=m * (k + 2 * n) * element,
        # "mlp.down" -> "down".
        results=made(shard, shard.own, {name.rpartition(".")[2]: n}),
        # The gradient of the output is that of the residual, unless it is gathered.
        back=m * (k + n * shard.sequence) * element,
    )


def _beside(steps: list[Step]) -> list[Step]:
    """Return a GEMM and its collective, pipelined in pieces, as steps that start together.

    Later steps wait for the collective, and their kernels also for the GEMM, which precedes them on the device.
    """
    # The GEMM first, whichever comes first in the list.
    gemm, other = sorted(steps, key=lambda step: step.collective is not None)
    return [replace(gemm, after=("",)), replace(other, after=("",))]


def norm(shard: Shard, name: str, size: int, weights: int) -> Block:
    """Return a norm of the residual; its backward pass adds the gradient of the skip connection."""
    held = shard.own * size * shard.element
    # Reads the input, its own gradient and the bypassing one; writes the sum.
    forward, back = _norm_passes(weights == size) if not shard.compiled else ({"norm": 2}, {"norm": 4})
    return Block(
        name,
        tuple(Step(each, bytes=passes * held) for each, passes in forward.items()),
        tuple(Step(each, bytes=passes * held) for each, passes in back.items()),
        parameters={"dp+cp": weights},
        partial=weights * shard.sequence,
        saved=held,
        working=2 * held,
    )


def _norm_passes(rms: bool) -> tuple[dict[str, int], dict[str, int]]:
    """Return the kernels of a norm that is not compiled -> tensors of 16 bits that they read and write.

    PyTorch has a kernel for layer norms; it makes RMS norms of operations in fp32, each of which counts twice here:
    forward cast, square, mean, product with the inverse root, cast, product with the weight. Backward the gradients of
    these, which autograd makes of more operators: the product with the weight has one of the input and a product and
    its sum for the weight; that with the root has one of the input and a product and its sum for the root; the gradient
    of the mean is written over the whole input; the square's is a copy of the input (a power of 1), twice that, and its
    product with the gradient. Then the sum of both gradients of the input, a cast, and the addition of the skip
    connection.
    """
    if not rms:
        return {"norm": 2}, {"norm": 4}
    forward = {"float": 3, "square": 4, "mean": 2, "scale": 4, "half": 3, "weight": 2}
    back = {
        "weight": 2, "gain": 3, "gains": 1, "half": 3, "scale": 4, "root": 6, "roots": 2, "mean": 2,
        "power": 4, "twice": 4, "square": 6, "sum": 6, "float": 3, "skip": 3,
    }  # fmt: skip
    return forward, back


def residual(shard: Shard, name: str, size: int) -> Block:
    """Return the addition to the residual, after dropout if any."""
    mask = shard.own * size if shard.dropout else 0
    held = shard.own * size * shard.element
    back = (Step("dropout", bytes=2 * held + mask),) if mask else ()
    return Block(
        name,
        (Step("add", bytes=3 * held + mask),),
        back,
        saved=mask,
        working=2 * held,
        back=held if mask else 0,
    )


def activation(shard: Shard, name: str, rows: int, inputs: int, outputs: int) -> Block:
    """Return an activation function of `rows` vectors; gated ones have twice as many inputs as outputs."""
    read, written = rows * inputs * shard.element, rows * outputs * shard.element
    if not shard.compiled and inputs > outputs:
        # A kernel for the function and one for the product; backward one for each factor, then the function.
        half = read // 2
        return Block(
            name,
            (Step("apply", bytes=half + written), Step("product", bytes=read + written)),
            (
                Step("factor", bytes=2 * written + half),
                Step("other", bytes=2 * written + half),
                Step("apply", bytes=2 * written + half),
            ),
            saved=read + half,
            working=read + written,
        )
    return Block(
        name,
        (Step("apply", bytes=read + written),),
        (Step("apply", bytes=2 * read + written),),
        saved=read,
        working=read + written,
        back=read + written,
    )


def projections(inner: int, gated: bool) -> dict[str, int]:
    """Return the columns of the input projections of a feed-forward block."""
    return {"gate": inner, "up": inner} if gated else {"up": inner}


def mlp_blocks(
    shard: Shard, hidden: int, size: int, *, gated: bool, bias: bool, name: str = "mlp", keep: bool = True
) -> list[Block]:
    """Return the blocks of hidden -> size -> hidden; up and gate are one GEMM.

    Args:
        shard: The share of this rank.
        hidden: Inputs and outputs.
        size: Inner size over all ranks of tp.
        gated: Whether there are two input projections.
        bias: Whether projections have one.
        name: Prefix of the names of the blocks.
        keep: Whether no other block keeps the input.
    """
    inner = size // shard.tp
    wide = inner * (2 if gated else 1)
    return [
        column(shard, f"{name}.up", hidden, wide, bias=bias, keep=keep, results=projections(inner, gated)),
        activation(shard, f"{name}.activation", shard.tokens, wide, inner),
        row(shard, f"{name}.down", inner, hidden, bias=bias),
    ]
