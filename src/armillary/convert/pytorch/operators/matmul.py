"""GEMMs: a multiply-add is two FLOPs; a bias added afterwards is not counted."""

from __future__ import annotations

from math import prod

from armillary.convert.pytorch.arguments import MalformedError
from armillary.convert.pytorch.operators.registry import Operator, rule
from armillary.trace.gemm import Gemm

FAMILY = "matmul"


def shape(left: list[int], right: list[int]) -> Gemm:
    """Return the GEMM that left @ right computes, with NumPy's rules for vectors and for broadcast batch sizes.

    Raises:
        MalformedError: the shapes do not fit.
    """
    if not left or not right:
        raise MalformedError((left, right))
    # A vector is a row on the left and a column on the right.
    rows, inner = (left[-2], left[-1]) if len(left) > 1 else (1, left[-1])
    depth, columns = (right[-2], right[-1]) if len(right) > 1 else (right[-1], 1)
    if inner != depth:
        raise MalformedError((left, right))
    a, b = left[:-2], right[:-2]
    width = max(len(a), len(b))
    a, b = [1] * (width - len(a)) + a, [1] * (width - len(b)) + b
    # Broadcast: of each pair of batch sizes the one that is not 1.
    batch = prod(y if x == 1 else x for x, y in zip(a, b, strict=True))
    return Gemm(rows, columns, inner, batch)


def product(left: list[int], right: list[int]) -> int:
    """Return the FLOPs of left @ right, see `shape`."""
    return shape(left, right).operations


def gemm(op: Operator, rule_of_op: object) -> Gemm | None:
    """Return the GEMM that an operator computes; None if it computes none, or several.

    Args:
        op: The operator.
        rule_of_op: The function of this module that counts its FLOPs.
    """
    if rule_of_op is mm:
        return shape(op.shape("self", 0), op.shape("mat2", 1))
    if rule_of_op is addmm:
        return shape(op.shape("", 1), op.shape("", 2))
    if rule_of_op is linear:
        # One GEMM over all leading sizes, not a batch of them: the weight is shared.
        left, weight = op.shape("input", 0), op.shape("weight", 1)
        return shape([prod(left[:-1]), left[-1]], weight[::-1])
    return None


@rule(
    FAMILY, "mm", "bmm", "matmul", "_int_mm", "_scaled_mm", "_scaled_mm_v2", "mv", "dot", "vdot", "_sparse_mm"
)
def mm(op: Operator) -> int:
    """Return the FLOPs of a GEMM of the first two arguments."""
    return product(op.shape("self", 0), op.shape("mat2", 1))


@rule(FAMILY, "addmm", "baddbmm", "addbmm", "addmv", "_addmm_activation")
def addmm(op: Operator) -> int:
    """Return the FLOPs of a GEMM of the second and the third argument."""
    return product(op.shape("", 1), op.shape("", 2))


@rule(FAMILY, "linear", "mkldnn_linear")
def linear(op: Operator) -> int:
    """Return the FLOPs of a GEMM with a transposed weight [out, in], or [in]."""
    weight = op.shape("weight", 1)
    return product(op.shape("input", 0), weight[::-1])


@rule(FAMILY, "linear_backward", "mkldnn_linear_backward")
def linear_backward(op: Operator) -> int:
    """Return the FLOPs of the gradients that ``output_mask`` asks for: of the input and of the weight."""
    gradient, weight = op.shape("grad_output", 1), op.shape("weight", 2)
    return sum(map(bool, op.value("output_mask", 3)[:2])) * product(gradient, weight)


@rule(FAMILY, "_weight_int4pack_mm", "_weight_int8pack_mm")
def packed(op: Operator) -> int:
    """Return the FLOPs of a GEMM with a packed weight; the result has its columns."""
    # The packed weight's own shape may be that of the kernel's tiles, so the columns are the result's.
    return 2 * op.shape("self", 0)[-1] * prod(op.result_shape())


@rule(FAMILY, "_grouped_mm", "_scaled_grouped_mm", "_scaled_grouped_mm_v2")
def grouped(op: Operator) -> int:
    """Return the FLOPs of GEMMs of the groups of [rows, inner] or [group, rows, inner] with theirs.

    Groups cut whatever size both share: the rows (2-D by 3-D), the columns (3-D by 2-D), or the sum (2-D by 2-D).
    """
    left, right = op.shape("self", 0), op.shape("mat2", 1)
    if len(left) == len(right) == 3:
        return product(left, right)
    # Group sizes are values of a tensor, which no trace records, but their sum is the size that both share.
    if left[-1] != right[-2]:
        raise MalformedError((left, right))
    return 2 * left[-2] * left[-1] * right[-1]


@rule(FAMILY, "_trilinear", "bilinear")
def trilinear(op: Operator) -> int:
    """Return the FLOPs of x1ᵀ W x2 for each row: a GEMM with W [out, in1, in2], then one with x2."""
    outer, first, second = op.shape("weight", 2)
    return 2 * (op.size("input1", 0)[0] // first) * outer * second * (first + 1)
