"""The network: a causal transformer over a program or a piece, with heads for the next token and for choices.

Pre-norm blocks (Xiong et al., *On Layer Normalization in the Transformer Architecture*, 2020). The condition is added
to every position. Weights are a table of arrays; `hidden` computes with numpy, so that only training needs PyTorch.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from math import sqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray

from armillary.lab.learned.model import StatisticalModel
from armillary.lab.learned.neural.grammar import Grammar
from armillary.lab.learned.neural.inputs import COUNT_SIZE
from armillary.lab.learned.neural.lexicon import Lexicon

Floats = NDArray[np.float32]
Weights = Mapping[str, Floats]


@dataclass(frozen=True)
class Sizes:
    """Sizes of a network.

    Attributes:
        width: Width of a hidden state.
        layers: Number of transformer blocks.
        heads: Attention heads.
        positions: Most tokens of a sequence.
        tokens: Tokens of the lexicon.
        near: Numbers of surroundings.
        features: Features of a condition.
        expressions: Expressions of counts.
        candidates: Candidates of all choices.
        residuals: Numbers whose formulas leave an error.
    """

    width: int
    layers: int
    heads: int
    positions: int
    tokens: int
    near: int
    features: int
    expressions: int
    candidates: int
    residuals: int

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Return the shape of every weight."""
        d = self.width
        found: dict[str, tuple[int, ...]] = {
            "token": (self.tokens, d),
            "position": (self.positions, d),
            "near": (self.near, d),
            "count_in": (COUNT_SIZE, d),
            "condition.0": (self.features, 2 * d),
            "condition.0.bias": (2 * d,),
            "condition.1": (2 * d, d),
            "norm": (d,),
            "norm.bias": (d,),
            "next": (d, self.tokens),
            "next.bias": (self.tokens,),
            "count": (d, self.expressions),
            "count.bias": (self.expressions,),
            "choice": (self.candidates, d),
            "choice.bias": (self.candidates,),
            "residual": (max(1, self.residuals), d),
        }
        for at in range(self.layers):
            for name, shape in (
                ("norm1", (d,)), ("norm1.bias", (d,)), ("qkv", (d, 3 * d)), ("out", (d, d)), ("norm2", (d,)),
                ("norm2.bias", (d,)), ("up", (d, 4 * d)), ("up.bias", (4 * d,)), ("down", (4 * d, d)),
            ):  # fmt: skip
                found[f"{at}.{name}"] = shape
        return found

    def to_json(self) -> dict[str, int]:
        """Return the sizes as plain JSON values."""
        return asdict(self)


def initial(sizes: Sizes, seed: int) -> dict[str, Floats]:
    """Return initial weights: normal, of deviation 1 / sqrt(inputs) for matrices and 0.02 for tables; norms are 1."""
    rng = np.random.default_rng(seed)
    found = {}
    for name, shape in sizes.shapes().items():
        if len(shape) == 1:
            value = np.full(shape, 1.0 if name.split(".")[-1].startswith("norm") else 0.0)
        elif name in ("token", "position", "near", "count_in", "choice", "residual"):
            value = rng.normal(0, 0.02 if name != "token" else 0.1, shape)
        else:
            value = rng.normal(0, 1 / sqrt(shape[0]), shape)
        found[name] = value.astype(np.float32)
    return found


def hidden(weights: Weights, sizes: Sizes, tokens: Any, condition: Any, near: Any, counts: Any) -> Floats:
    """Return the hidden state at every position.

    Args:
        weights: Weights of the network.
        sizes: Sizes of the network.
        tokens: Tokens, (sequences, length).
        condition: Scaled features, (sequences, features).
        near: Surroundings of pieces, (sequences, keys); None: programs have none.
        counts: Features of the counts before each token, (sequences, length, `COUNT_SIZE`); None: pieces have none.

    Returns:
        (sequences, length, width).
    """
    w, d = weights, sizes.width
    inside = _gelu(condition @ w["condition.0"] + w["condition.0.bias"])
    added = inside @ w["condition.1"]
    if near is not None:
        added = added + w["near"][near].sum(1)
    n, length = tokens.shape
    # The condition is the same at every position; it is added to the embedding, not prepended as a token.
    x = w["token"][tokens] + w["position"][None, :length] + added[:, None, :]
    if counts is not None:
        x = x + counts @ w["count_in"]
    # Causal mask: -1e9 rather than -inf, so that no row of the softmax can become NaN.
    future = np.triu(np.full((length, length), -1e9, np.float32), 1)
    for at in range(sizes.layers):
        y = _norm(x, w, f"{at}.norm1") @ w[f"{at}.qkv"]
        q, k, v = (
            part.reshape(n, length, sizes.heads, d // sizes.heads).transpose(0, 2, 1, 3)
            for part in np.split(y, 3, axis=-1)
        )
        scores = q @ k.transpose(0, 1, 3, 2) / np.float32(sqrt(d / sizes.heads)) + future
        # Softmax; the largest score is subtracted so that exp does not overflow.
        share = np.exp(scores - scores.max(-1, keepdims=True))
        mixed = (share / share.sum(-1, keepdims=True)) @ v
        x = x + mixed.transpose(0, 2, 1, 3).reshape(n, length, d) @ w[f"{at}.out"]
        y = _norm(x, w, f"{at}.norm2") @ w[f"{at}.up"] + w[f"{at}.up.bias"]
        x = x + _gelu(y) @ w[f"{at}.down"]
    found: Floats = _norm(x, w, "norm")
    return found


def _norm(x: Any, w: Weights, name: str) -> Any:
    centred = x - x.mean(-1, keepdims=True)
    scale = np.sqrt((centred * centred).mean(-1, keepdims=True) + np.float32(1e-5))
    return centred / scale * w[name] + w[f"{name}.bias"]


def _gelu(x: Any) -> Any:
    """Return the GELU in its tanh form (Hendrycks and Gimpel, 2016, section 2)."""
    return 0.5 * x * (1 + np.tanh(np.float32(sqrt(2 / np.pi)) * (x + np.float32(0.044715) * x * x * x)))


@dataclass
class NeuralModel:
    """The neural model.

    Attributes:
        base: The library: vocabulary, variants, references, sums and rules, and a description of the training data.
        grammar: Grammar of programs.
        sizes: Sizes of the network.
        weights: Weights of the network.
        scales: Mean and standard deviation of every feature of a condition, (2, features).
    """

    base: StatisticalModel
    grammar: Grammar
    sizes: Sizes
    weights: dict[str, Floats]
    scales: Floats

    def lexicon(self) -> Lexicon:
        """Return the numbers of tokens and candidates."""
        return Lexicon(self.base, self.grammar.blocks)
