"""The network in PyTorch, for its gradients; `network.hidden` is its plain twin."""

from __future__ import annotations

import importlib
from typing import Any

from armillary.base.errors import InputError
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
