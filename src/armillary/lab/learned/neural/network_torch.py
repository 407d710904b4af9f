"""The network in PyTorch, for its gradients; `network.hidden` is its plain reference."""

from __future__ import annotations

import importlib
from typing import Any

from armillary.base.errors import InputError
from armillary.lab.learned.neural.batches import Batch
from armillary.lab.learned.neural.network import Sizes


def import_torch() -> Any:
    """Return the module ``torch``.

    Raises:
        InputError: it is not installed; names the extra.
    """
    try:
        return importlib.import_module("torch")
    except ImportError as error:
        raise InputError("training a neural model needs PyTorch: pip install armillary[learn]") from error


def hidden(torch: Any, w: dict[str, Any], sizes: Sizes, batch: dict[str, Any]) -> Any:
    """Return the hidden state at every position, see `network.hidden`; a batch has its arguments as tensors."""
    functional = torch.nn.functional
    d, heads = sizes.width, sizes.heads

    def norm(x: Any, name: str) -> Any:
        return functional.layer_norm(x, (d,), w[name], w[f"{name}.bias"])

    def gelu(x: Any) -> Any:
        return functional.gelu(x, approximate="tanh")

    added = gelu(batch["condition"] @ w["condition.0"] + w["condition.0.bias"]) @ w["condition.1"]
    if "near" in batch:
        added = added + w["near"][batch["near"]].sum(1)
    n, length = batch["tokens"].shape
    x = functional.embedding(batch["tokens"], w["token"]) + w["position"][None, :length] + added[:, None, :]
    if "counts" in batch:
        x = x + batch["counts"] @ w["count_in"]
    for at in range(sizes.layers):
        y = norm(x, f"{at}.norm1") @ w[f"{at}.qkv"]
        q, k, v = (part.reshape(n, length, heads, d // heads).transpose(1, 2) for part in y.split(d, dim=-1))
        mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + mixed.transpose(1, 2).reshape(n, length, d) @ w[f"{at}.out"]
        x = x + gelu(norm(x, f"{at}.norm2") @ w[f"{at}.up"] + w[f"{at}.up.bias"]) @ w[f"{at}.down"]
    return norm(x, "norm")


LOSSES = ("token", "count", "symbol", "choice", "residual")


def program_losses(torch: Any, weights: dict[str, Any], sizes: Sizes, arrays: Batch) -> list[Any]:
    """Return the losses of a batch of programs: token and count."""
    batch = {name: torch.from_numpy(value) for name, value in arrays.items()}
    state = hidden(torch, weights, sizes, batch)
    flat = state.reshape(-1, sizes.width)
    logits = flat[batch["count_at"]] @ weights["count"] + weights["count.bias"]
    return [
        _next_loss(torch, weights, flat, batch["target"]),
        _marginal(torch, logits, torch.ones_like(batch["count_right"]), batch["count_right"]),
    ]


def piece_losses(torch: Any, weights: dict[str, Any], sizes: Sizes, arrays: Batch) -> list[Any]:
    """Return the losses of a batch of pieces (symbol, choice, residual), times the number of pieces."""
    batch = {name: torch.from_numpy(value) for name, value in arrays.items()}
    flat = hidden(torch, weights, sizes, batch).reshape(-1, sizes.width)
    embedding = torch.nn.functional.embedding
    tables = embedding(batch["choice"], weights["choice"])
    logits = torch.einsum("nd,ncd->nc", flat[batch["choice_at"]], tables)
    logits = logits + weights["choice.bias"][batch["choice"]]
    made = (flat[batch["residual_at"]] * embedding(batch["residual"], weights["residual"])).sum(-1)
    # A sum times 0 where there is none: a loss of 0 that still has gradients.
    left = torch.nn.functional.smooth_l1_loss(made, batch["residual_value"]) if len(made) else flat.sum() * 0
    found = (
        _next_loss(torch, weights, flat, batch["target"]),
        _marginal(torch, logits, batch["choice_there"], batch["choice_right"]),
    )
    return [len(arrays["tokens"]) * each for each in (*found, left)]


def _next_loss(torch: Any, weights: dict[str, Any], flat: Any, target: Any) -> Any:
    target = target.reshape(-1)
    there = target >= 0
    logits = flat[there] @ weights["next"] + weights["next.bias"]
    return torch.nn.functional.cross_entropy(logits, target[there])


def _marginal(torch: Any, logits: Any, there: Any, right: Any) -> Any:
    """Return the mean negative logarithm of the total probability of all right choices."""
    # Examples without a right choice teach nothing; their logarithm would be infinite.
    known = right.any(1)
    if not bool(known.any()):
        return logits.sum() * 0
    logits, there, right = logits[known], there[known], right[known]
    every = torch.where(there, logits, torch.full_like(logits, -1e9)).logsumexp(1)
    good = torch.where(right, logits, torch.full_like(logits, -1e9)).logsumexp(1)
    return (every - good).mean()
