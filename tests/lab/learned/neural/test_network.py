"""The network in numpy: it does not look ahead, and is the one that PyTorch trains."""

from __future__ import annotations

import numpy as np
import pytest

from armillary.lab.learned.neural.inputs import COUNT_SIZE, MOST, count_features
from armillary.lab.learned.neural.network import Sizes, hidden, initial

SIZES = Sizes(
    width=16,
    layers=2,
    heads=4,
    positions=12,
    tokens=9,
    near=20,
    features=5,
    expressions=3,
    candidates=4,
    residuals=0,
)


def _inputs(seed: int) -> tuple[np.ndarray, ...]:  # type: ignore[type-arg]
    rng = np.random.default_rng(seed)
    return (
        rng.integers(0, 9, (3, 7)), rng.normal(size=(3, 5)).astype(np.float32), rng.integers(0, 20, (3, 4)),
        count_features(rng.integers(-1, 12, (3, 7))),
    )  # fmt: skip


def test_later_tokens_do_not_matter() -> None:
    weights = initial(SIZES, 0)
    tokens, condition, near, counts = _inputs(0)
    before = hidden(weights, SIZES, tokens, condition, near, counts)
    tokens[:, 5:] = (tokens[:, 5:] + 1) % 9
    after = hidden(weights, SIZES, tokens, condition, near, counts)
    assert np.allclose(before[:, :5], after[:, :5], atol=1e-6)
    assert not np.allclose(before[:, 5:], after[:, 5:], atol=1e-3)


def test_as_in_pytorch() -> None:
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    from armillary.lab.learned.neural.network_torch import hidden as hidden_torch

    weights = initial(SIZES, 1)
    tensors = {name: torch.from_numpy(value) for name, value in weights.items()}
    tokens, condition, near, counts = _inputs(1)
    arrays = {"tokens": tokens, "condition": condition, "near": near, "counts": counts}
    batch = {name: torch.from_numpy(value) for name, value in arrays.items()}
    assert np.allclose(
        hidden(weights, SIZES, tokens, condition, near, counts),
        hidden_torch(torch, tensors, SIZES, batch).numpy(),
        atol=1e-5,
    )
    del batch["near"], batch["counts"]
    assert np.allclose(
        hidden(weights, SIZES, tokens, condition, None, None),
        hidden_torch(torch, tensors, SIZES, batch).numpy(),
        atol=1e-5,
    )


def test_counts_as_features() -> None:
    found = count_features(np.array([-1, 0, 3, MOST, 50]))
    assert found.shape == (5, COUNT_SIZE)
    assert not found[0].any()
    assert found[:, :-1].argmax(1).tolist()[1:] == [0, 3, MOST, MOST]
    assert found[4, -1] > found[3, -1]
