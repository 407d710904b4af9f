"""The losses of a network: what comes next, and what is right of counts, choices and residuals.

Several expressions may give a count, and several formulas a number. Their loss is the negative logarithm of the
probability of all that do together, so that the ones which are right under most conditions win.
"""

from __future__ import annotations

from typing import Any

from armillary.lab.learned.neural.batches import Batch
from armillary.lab.learned.neural.network import Sizes
from armillary.lab.learned.neural.network_torch import hidden

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
    """Return the losses of a batch of pieces (symbol, choice, residual), times how many pieces there are."""
    batch = {name: torch.from_numpy(value) for name, value in arrays.items()}
    flat = hidden(torch, weights, sizes, batch).reshape(-1, sizes.width)
    embedding = torch.nn.functional.embedding
    tables = embedding(batch["choice"], weights["choice"])
    logits = torch.einsum("nd,ncd->nc", flat[batch["choice_at"]], tables)
    logits = logits + weights["choice.bias"][batch["choice"]]
    made = (flat[batch["residual_at"]] * embedding(batch["residual"], weights["residual"])).sum(-1)
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
    """Return the mean negative logarithm of the probability of all that is right together."""
    known = right.any(1)
    if not bool(known.any()):
        return logits.sum() * 0
    logits, there, right = logits[known], there[known], right[known]
    every = torch.where(there, logits, torch.full_like(logits, -1e9)).logsumexp(1)
    good = torch.where(right, logits, torch.full_like(logits, -1e9)).logsumexp(1)
    return (every - good).mean()
