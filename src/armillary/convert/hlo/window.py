"""Windows of convolutions: pairs of output and kernel positions that meet an element of the input."""

from __future__ import annotations

import re
from dataclasses import dataclass
from math import gcd

import numpy as np

from armillary.convert.hlo.module import Instruction, Module

_LABELS = re.compile(r"(\w+)_(\w+)->(\w+)")
_FIELD = re.compile(r"(\w+)=([\w\-]+)")
_PAD = re.compile(r"(-?\d{1,18})_(-?\d{1,18})")
_SIZE = re.compile(r"\d{1,18}")
_COUNTED = 1 << 22
"""Most positions for which pairs are counted exactly; beyond, pairs outside the input count too."""


@dataclass(frozen=True)
class Window:
    """One dimension of a window."""

    size: int
    stride: int = 1
    pad: int = 0
    """Padding before the first element; may be negative."""
    input_dilation: int = 1
    kernel_dilation: int = 1

    def pairs(self, outputs: int, inputs: int) -> int:
        """Count the pairs (output o, kernel k) whose position o·stride + k·dilation - pad is one of the input.

        Args:
            outputs: positions of the output.
            inputs: elements of the input, which are `input_dilation` positions apart.
        """
        # Of the two progressions, output and kernel positions, one becomes an array and the other is counted
        # in closed form for each of its elements, so the shorter one becomes the array.
        few, many = (self.size, self.kernel_dilation), (outputs, self.stride)
        if many[0] < few[0]:
            few, many = many, few
        if not few[0] or not inputs:
            return 0
        extent = (inputs - 1) * self.input_dilation + 1
        reach = outputs * self.stride + self.size * self.kernel_dilation + abs(self.pad) + extent
        # Beyond 2^60 the int64 arithmetic below could overflow.
        if few[0] > _COUNTED or reach >= 1 << 60:
            return few[0] * many[0]
        offset = np.arange(few[0], dtype=np.int64) * few[1] - self.pad
        step, apart = many[1], self.input_dilation
        low = np.maximum(-(offset // step), 0)  # 0 <= offset + i·step < extent
        high = np.minimum((extent - 1 - offset) // step, many[0] - 1)
        common = gcd(step, apart)
        period = apart // common
        hits = offset % common == 0  # offset + i·step is a multiple of `apart` for one i in `period`
        # Linear congruence: offset + i·step ≡ 0 modulo `apart`, divided by their common divisor, solved for i.
        inverse = pow(step // common, -1, period)
        first = -(offset // common) % period * inverse % period
        # The first solution from `low` on; from there every `period`-th.
        start = low + (first - low) % period
        count = np.where(hits & (start <= high), (high - start) // period + 1, 0)
        return int(count.sum())


def windows(module: Module, instruction: Instruction) -> list[Window]:
    """Return the dimensions of ``window={size=3x3 pad=1_1x1_1 …}``; none where there is no window.

    Raises:
        InputError: it cannot be read.
    """
    fields = dict(_FIELD.findall(instruction.attributes.get("window", "")))
    parts = {name: text.split("x") for name, text in fields.items()}
    n = len(parts.get("size", ()))
    for name, values in parts.items():
        wanted = _PAD if name == "pad" else _SIZE
        if len(values) != n or not all(wanted.fullmatch(value) for value in values):
            module.source.fail(
                instruction.at, f"window has {name}={fields[name]}, expected {n or 'some'} numbers"
            )

    def column(name: str) -> list[int]:
        return [max(int(value), 1) for value in parts.get(name, ["1"] * n)]

    sizes = [int(value) for value in parts.get("size", ())]
    pads = [int(value.partition("_")[0]) for value in parts.get("pad", ["0_0"] * n)]
    rows = zip(sizes, column("stride"), pads, column("lhs_dilate"), column("rhs_dilate"), strict=True)
    return [Window(*row) for row in rows]


def convolution_flops(module: Module, instruction: Instruction) -> int:
    """Return 2 · batch · output features · input features per group · pairs, over the spatial dimensions.

    Raises:
        InputError: operands, window and ``dim_labels`` do not fit each other.
    """
    labels = _LABELS.fullmatch(instruction.attributes.get("dim_labels", ""))
    window = windows(module, instruction)
    if labels is None or len(instruction.operands) < 2:
        module.source.fail(instruction.at, "a convolution without dim_labels=…_…->… or without two operands")
    arrays = instruction.operands[0].shape, instruction.operands[1].shape, instruction.shape.leaves[0]
    lhs, kernel, out = (
        dict(zip(label, array.dims, strict=False))
        for label, array in zip(labels.groups(), arrays, strict=True)
    )
    spatial = [str(i) for i in range(len(window))]
    if not all({*spatial, *names} <= of.keys() for of, names in ((lhs, "b"), (kernel, "io"), (out, "bf"))):
        module.source.fail(instruction.at, f"dim_labels={labels[0]} does not fit the window or the operands")
    flops = 2 * out["b"] * out["f"] * kernel["i"]
    for name, one in zip(spatial, window, strict=True):
        flops *= one.pairs(out[name], lhs[name])
    return int(flops)
