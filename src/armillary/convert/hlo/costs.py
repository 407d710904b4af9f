"""Floating-point operations of instructions: 2 for a multiply-add, 1 for an element of anything element-wise."""

from __future__ import annotations

from math import prod
from typing import Any

from armillary.base.portable import log2
from armillary.convert.hlo.module import Computation, Instruction, Module, numbers
from armillary.convert.hlo.shapes import Shape
from armillary.convert.hlo.window import convolution_flops, windows

FREE = frozenset({
    "parameter", "constant", "tuple", "get-tuple-element", "bitcast", "after-all", "partition-id",
    "replica-id", "opt-barrier", "optimization-barrier", "add-dependency", "domain", "reshape",
    "get-dimension-size", "set-dimension-size", "dynamic-reshape", "infeed", "outfeed",
})  # fmt: skip
"""Opcodes that take no time of their own: a value by another name, or the host's work."""

ELEMENT_WISE = frozenset({
    "abs", "acos", "acosh", "add", "and", "asin", "asinh", "atan2", "atanh", "cbrt", "ceil", "clamp",
    "compare", "complex", "convert", "cos", "cosh", "count-leading-zeros", "divide", "erf", "exponential",
    "exponential-minus-one", "floor", "imag", "is-finite", "log", "log-plus-one", "logistic", "map",
    "maximum", "minimum", "multiply", "negate", "not", "or", "popcnt", "power", "real", "reduce-precision",
    "remainder", "rng", "rng-bit-generator", "rng-get-and-update-state", "round-nearest-afz",
    "round-nearest-even", "rsqrt", "select", "shift-left", "shift-right-arithmetic", "shift-right-logical",
    "sign", "sin", "sinh", "sqrt", "stochastic-convert", "subtract", "tan", "tanh", "xor",
})  # fmt: skip

MOVING = frozenset({
    "all-gather", "all-reduce", "all-to-all", "bitcast-convert", "broadcast", "collective-broadcast",
    "collective-permute", "concatenate", "copy", "dynamic-slice", "dynamic-update-slice", "gather", "iota",
    "pad", "ragged-all-to-all", "recv", "reduce-scatter", "reverse", "send", "slice", "transpose",
})  # fmt: skip
"""Opcodes that move bytes and compute nothing."""

_MARKERS = (
    "Sharding",
    "SPMDFullToShardShape",
    "SPMDShardToFullShape",
    "LayoutConstraint",
    "xla.sdy.",
    "annotate_device",
)


def is_marker(instruction: Instruction) -> bool:
    """Return whether it is a custom call that only marks a value."""
    return instruction.opcode == "custom-call" and target(instruction).startswith(_MARKERS)


def target(instruction: Instruction) -> str:
    """Return the target of a custom call."""
    return instruction.attributes.get("custom_call_target", '""').strip('"')


class Costs:
    """FLOPs of instructions and of whole computations, which are counted once."""

    def __init__(self, module: Module) -> None:
        self.module = module
        self.unknown: dict[str, Instruction] = {}
        """An example of each opcode and custom call whose operations are not known."""
        self._of: dict[str, int] = {}
        # Callees stand first in a module, so the sums that a caller needs are there.
        for computation in module.computations.values():
            self._of[computation.name] = sum(self.flops(i) for i in computation.instructions)

    def computation(self, computation: Computation) -> int:
        """Return the FLOPs of one run of a computation, its loops once."""
        return self._of[computation.name]

    def flops(self, instruction: Instruction) -> int:
        """Return the FLOPs of one instruction; those of a fusion are the sum of what it fuses.

        Raises:
            InputError: its attributes do not fit its operands.
        """
        opcode = instruction.opcode.removesuffix("-start")
        if opcode in ELEMENT_WISE:
            times = self._applied(instruction, "to_apply") if opcode == "map" else 1
            return times * instruction.shape.elements
        if opcode in FREE or opcode in MOVING or opcode.endswith(("-done", "-update")):
            return 0
        if opcode in ("fusion", "call", "async", "while"):
            # A loop's body and condition once: whoever unrolls or scales the loop multiplies.
            return sum(self._of[c.name] for _, c in self.module.callees(instruction))
        if opcode == "conditional":
            # The branch that `Lowering` takes where the module does not tell.
            return max((self._of[c.name] for _, c in self.module.callees(instruction)), default=0)
        if opcode in ("dot", "ragged-dot", "scaled-dot"):
            return self._dot(instruction)
        if opcode == "convolution":
            return convolution_flops(self.module, instruction)
        if opcode == "custom-call":
            return self._custom(instruction)
        return self._other(instruction, opcode)

    def _other(self, instruction: Instruction, opcode: str) -> int:
        given = instruction.operands[0].shape if instruction.operands else instruction.shape
        out = instruction.shape.leaves[0] if instruction.shape.leaves else instruction.shape
        if opcode == "reduce":
            # Reducing n elements to one applies the function n - 1 times.
            return max(given.elements - out.elements, 0) * self._applied(instruction, "to_apply")
        if opcode == "reduce-window":
            size = prod(one.size for one in windows(self.module, instruction))
            return max(size - 1, 0) * out.elements * self._applied(instruction, "to_apply")
        if opcode == "select-and-scatter":
            size = prod(one.size for one in windows(self.module, instruction))
            # Each element of the source picks a place in its window (size - 1 comparisons) and is added there.
            source = instruction.operands[min(1, len(instruction.operands) - 1)].shape.elements
            select = max(size - 1, 0) * self._applied(instruction, "select")
            return source * (select + self._applied(instruction, "scatter"))
        if opcode == "scatter":
            updates = instruction.operands[-1].shape.elements if instruction.operands else 0
            return updates * self._applied(instruction, "to_apply")
        if opcode in ("sort", "topk"):
            along = _at(given, numbers(instruction.attributes.get("dimensions", "")), [-1])
            # n · log2 n comparisons along the sorted dimension; a topk has no function of its own.
            compare = self._applied(instruction, "to_apply") if "to_apply" in instruction.attributes else 1
            return given.elements * _log2(along) * compare
        if opcode == "fft":
            length = prod(numbers(instruction.attributes.get("fft_length", "")))
            # 5 · n · log2 n for each transform, the usual convention (FFTW's).
            return 5 * max(given.elements, out.elements) * _log2(length)
        if opcode == "cholesky":
            # n³ / 3 for each matrix.
            return given.elements * _at(given, (), [-1]) // 3
        if opcode == "triangular-solve":
            # n² for each right-hand side.
            return out.elements * _at(given, (), [-1])
        if opcode.startswith("batch-norm"):
            return 8 * given.elements
        self.unknown.setdefault(opcode, instruction)
        return 0

    def _applied(self, instruction: Instruction, attribute: str) -> int:
        return self._of[self.module.callee(instruction, attribute).name]

    def _dot(self, instruction: Instruction) -> int:
        contracting = numbers(instruction.attributes.get("lhs_contracting_dims", ""))
        return self._gemm(instruction, contracting, instruction.shape)

    def _gemm(self, instruction: Instruction, contracting: tuple[int, ...], out: Shape) -> int:
        """Return 2 · M · N · K, batch dimensions counted in `out`."""
        lhs = instruction.operands[0].shape.dims if instruction.operands else ()
        if any(i >= len(lhs) for i in contracting):
            self.module.source.fail(
                instruction.at, f"contracts dimensions {list(contracting)} of an operand that has {len(lhs)}"
            )
        return 2 * out.elements * prod(lhs[i] for i in contracting)

    def _custom(self, instruction: Instruction) -> int:
        name = target(instruction)
        out = instruction.shape.leaves[0] if instruction.shape.leaves else instruction.shape
        if name.startswith(("__cublas$gemm", "__cublas$lt$matmul", "__cublas$lt$groupedMatmul")):
            gemm = _find(instruction.config(), "dot_dimension_numbers")
            return self._gemm(instruction, _ints(gemm, "lhs_contracting_dimensions"), out)
        if name.startswith("__cudnn$conv"):
            return self._cudnn(instruction, name, out)
        if name.startswith("__cudnn$fmha") and len(instruction.operands) > 1:
            return self._attention(instruction, backward="Backward" in name)
        if name == "__onednn$matmul" and instruction.operands and instruction.operands[0].shape.dims:
            transposed = _find(instruction.config(), "onednn_matmul_config").get("transpose_a", False)
            # oneDNN contracts the last dimension of the left operand, or the one before if that is transposed.
            rank = len(instruction.operands[0].shape.dims)
            return self._gemm(instruction, (max(rank - (2 if transposed else 1), 0),), out)
        if name in ("TopK", "__gpu$TopK"):
            given = instruction.operands[0].shape if instruction.operands else out
            return given.elements * _log2(_at(given, (), [-1]))
        if not is_marker(instruction):
            self.unknown.setdefault(f"custom-call {name}", instruction)
        return 0

    def _cudnn(self, instruction: Instruction, name: str, out: Shape) -> int:
        """Return 2 · |output| · |kernel| ÷ output features of the forward convolution; padding counts as input."""
        shapes = [operand.shape for operand in instruction.operands[:2]]
        if "BackwardInput" in name and len(shapes) == 2:
            output, kernel = shapes
        elif "BackwardFilter" in name and len(shapes) == 2:
            output, kernel = shapes[1], out
        else:
            output, kernel = out, shapes[-1] if shapes else out
        # Of b01f_01io->b01f, the part about the kernel.
        labels = instruction.attributes.get("dim_labels", "").partition("_")[2].partition("->")[0]
        features = _at(kernel, (), [labels.find("o")])
        return 2 * output.elements * kernel.elements // max(features, 1)

    def _attention(self, instruction: Instruction, *, backward: bool) -> int:
        """Return the FLOPs of 2 GEMMs of the size of query times key, 5 in the backward pass."""
        query, key = instruction.operands[0].shape, instruction.operands[1].shape
        first = _find(instruction.config(), "bmm1_dot_dimension_numbers")
        # The dimension of the key that is neither contracted nor a batch is the sequence.
        shared = {*_ints(first, "rhs_contracting_dimensions"), *_ints(first, "rhs_batch_dimensions")}
        keys = prod(size for i, size in enumerate(key.dims) if i not in shared) if shared else 0
        if not keys:
            self.unknown.setdefault(f"custom-call {target(instruction)}", instruction)
        # Forward: scores, and scores times values. Backward: the scores again, and the gradients of values,
        # scores, query and key.
        return 2 * (5 if backward else 2) * query.elements * keys


def _at(shape: Shape, dims: tuple[int, ...], default: list[int]) -> int:
    """Return the product of the sizes of those of the dimensions that the shape has."""
    return prod(shape.dims[i] for i in dims or default if -len(shape.dims) <= i < len(shape.dims))


def _log2(length: int) -> int:
    return max(round(log2(length)), 1) if length > 1 else 0


def _find(value: Any, key: str) -> dict[str, Any]:
    """Return the first object under `key`, at any depth of nested objects; empty if there is none."""
    found = [value]
    # The list grows while it is walked: a breadth-first search.
    for one in found:
        if isinstance(one, dict):
            if isinstance(one.get(key), dict):
                return dict(one[key])
            found.extend(one.values())
    return {}


def _ints(value: dict[str, Any], key: str) -> tuple[int, ...]:
    listed = value.get(key)
    return numbers(str(listed)) if isinstance(listed, list) else ()
