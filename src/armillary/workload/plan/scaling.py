"""Recipes of training in fp8 and fp4: how operands of GEMMs are scaled, and what kernels do so.

As Transformer Engine runs them (transformer_engine/common/recipe, and its quantizers): a kernel quantises each input
of a linear layer, and each gradient of an output, once. It reads 16 bits and writes the tensor along its rows, for the
GEMM of its own pass, and along its columns, for the gradient of the weight. Weights are quantised once per step.

- ``delayed``: one scale per tensor, from the largest values of earlier passes; these are reduced over all ranks with
  the stage's weights, twice per microbatch. A norm before the layer writes fp8 itself.
- ``current``: one scale per tensor, from its own largest value, which a kernel finds first; where ranks of tp hold
  parts of the tensor, they agree on it.
- ``block``: an fp32 scale per 1 x 128 values, 128 x 128 of a weight (DeepSeek-V3, arXiv 2412.19437, §3.3.2).
- ``mx``: an 8-bit scale per 32 values (OCP Microscaling Formats 1.0).
- ``nvfp4``: an 8-bit scale per 16 values and one per tensor; what goes along the columns passes a random Hadamard
  transform, in a kernel of its own (arXiv 2509.25149).
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from armillary.workload.plan.schema import Plan

HIGH = 2
"""Bytes of an element before it is quantised."""


@dataclass(frozen=True)
class Recipe:
    """What a recipe does to a tensor.

    Attributes:
        element: Bytes of an element with its share of a scale, along rows or along columns.
        kernels: Bytes of an element that each kernel of a quantisation moves, by the kernel's name.
        reduces: Whether ranks of tp that hold parts of a tensor agree on its largest value.
        behind: Whether a norm before the layer quantises for it.
        history: Whether largest values of all tensors are reduced over the replicas.
        both: Whether gradients are gathered along rows and columns; else along rows, and turned by each rank.
        align: Tokens to a multiple of which those of an expert are padded (Megatron-core, get_fp8_align_size and
            get_fp4_align_size).
        turned: Operands of a GEMM whose scales a kernel puts in the order that cuBLAS reads, where kernels are `apart`.
            Transformer Engine 2.12 has kernels that quantise write that order (pull request 2486).
        grouped: Whether kernels quantise the vectors of all experts at once where they are `joined` (pull requests
            2351 and 2411, of the same release).
    """

    element: Fraction
    kernels: dict[str, Fraction]
    reduces: bool = False
    behind: bool = False
    history: bool = False
    both: bool = False
    align: int = 16
    turned: int = 0
    grouped: bool = False

    @property
    def last(self) -> str:
        """The kernel that writes a tensor along its columns."""
        return list(self.kernels)[-1]

    @property
    def last_saves(self) -> Fraction:
        """Bytes of an element that it does not move where nothing reads columns: all, of a kernel of its own."""
        return self.kernels[self.last] if "columns" in self.last else self.element


def _kernels(element: Fraction, *, amax: bool = False, apart: bool = False) -> dict[str, Fraction]:
    found = {"amax": Fraction(HIGH)} if amax else {}
    if apart:
        return found | {"quantize": HIGH + element, "quantize columns": HIGH + element}
    return found | {"quantize": HIGH + 2 * element}


_TENSOR, _BLOCK, _MX, _NVFP4 = (
    Fraction(1), 1 + Fraction(4, 128), 1 + Fraction(1, 32), Fraction(1, 2) + Fraction(1, 16),
)  # fmt: skip
RECIPES = {
    "delayed": Recipe(_TENSOR, _kernels(_TENSOR), behind=True, history=True),
    "current": Recipe(_TENSOR, _kernels(_TENSOR, amax=True), reduces=True),
    "block": Recipe(_BLOCK, _kernels(_BLOCK)),
    "mx": Recipe(_MX, _kernels(_MX), both=True, align=32, turned=2),
    "nvfp4": Recipe(
        _NVFP4,
        _kernels(_NVFP4, amax=True, apart=True),
        reduces=True,
        both=True,
        align=64,
        turned=2,
        grouped=True,
    ),
}
AMAX = 4
"""Bytes of a largest value."""
TENSORS = {"forward": 3, "backward": 2}
"""Largest values that delayed scaling keeps of a linear layer: input, weight and output; their gradients' two."""


def recipe_of(plan: Plan) -> Recipe | None:
    """Return the recipe of a plan, or None."""
    return RECIPES[plan.numbers.recipe] if plan.numbers.recipe else None


def weight_traffic(plan: Plan) -> Fraction:
    """Return the bytes per weight that its quantisation moves, once a step."""
    recipe = recipe_of(plan)
    return sum(recipe.kernels.values(), Fraction(0)) if recipe else Fraction(0)


def alignment(plan: Plan) -> int:
    """Return the number of which the tokens of an expert are a multiple, with padding."""
    recipe = recipe_of(plan)
    return plan.experts.align or (recipe.align if recipe else 1)
