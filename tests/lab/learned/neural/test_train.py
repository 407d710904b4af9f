"""Neural models: what is made is valid, files keep them, and a trained one makes traces that are nearly right."""

from __future__ import annotations

import json
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from armillary.base.errors import InputError
from armillary.lab.fidelity.measure import measure, step_time
from armillary.lab.learned.corpus import Corpus, read_corpus, write_corpus
from armillary.lab.learned.neural.model_file import load_neural, open_sampler, save_neural
from armillary.lab.learned.neural.network import NeuralModel
from armillary.lab.learned.neural.network_torch import import_torch
from armillary.lab.learned.neural.sample import NeuralSampler
from armillary.lab.learned.neural.train import train
from armillary.lab.learned.requests import Request
from armillary.trace import Trace
from armillary.trace.check_ranks import check_trace
from armillary.trace.expand import expand

NEW = (
    {"layers": 10, "hidden": 3072, "ffn": 9216, "vocabulary": 64000, "kv_heads": 4, "tp": 2, "pp": 1, "dp": 2,
     "microbatches": 3},
    {"layers": 8, "hidden": 4096, "ffn": 11008, "vocabulary": 50304, "kv_heads": 8, "tp": 1, "pp": 2, "dp": 1,
     "microbatches": 5},
)  # fmt: skip


NEEDS = pytest.mark.skipif(find_spec("torch") is None, reason="PyTorch is not installed")


@pytest.fixture(scope="module")
def neural(corpus: Corpus) -> NeuralModel:
    if find_spec("torch") is None:
        pytest.skip("PyTorch is not installed")
    return train(corpus, steps=120, size=32, layers=1)


def _check(trace: Trace) -> None:
    found = check_trace(expand(trace))
    assert not found.ranks
    assert not any(found.graphs)
    assert step_time(trace, "hgx-h100") > 0


def test_what_is_made_is_valid(neural: NeuralModel) -> None:
    """Hardly trained, so that draws are wild: what is not refused is valid, and there is some of it."""
    sampler, made = NeuralSampler(neural), 0
    for condition in NEW:
        for seed in range(4):
            try:
                trace = sampler.sample(condition, seed=seed, temperature=seed / 2)
            except InputError as error:
                assert "expected" in str(error)
                continue
            _check(trace)
            made += 1
    assert made


@NEEDS
def test_the_same_seed_makes_the_same(corpus: Corpus) -> None:
    one, same, other = (train(corpus, seed=seed, steps=3, size=8, layers=1) for seed in (0, 0, 1))
    assert all(np.array_equal(value, same.weights[name]) for name, value in one.weights.items())
    assert not np.array_equal(one.weights["next"], other.weights["next"])


def test_files(neural: NeuralModel, tmp_path: Path) -> None:
    path = tmp_path / "model.npz"
    save_neural(neural, path)
    again = load_neural(path)
    assert (again.grammar, again.sizes, again.base.about) == (neural.grammar, neural.sizes, neural.base.about)
    assert "loss of 4 held out" in again.base.about
    sampler = open_sampler(path)
    assert isinstance(sampler, NeuralSampler)
    one, other = (each.tokens(_class(NEW[0])) for each in (sampler, NeuralSampler(neural)))
    assert np.array_equal(one.symbols, other.symbols)
    assert np.array_equal(one.numbers, other.numbers)


def _class(condition: dict[str, Any]) -> dict[str, Any]:
    from armillary.lab.learned.conditions import of_class, wish
    from armillary.lab.learned.requests import completed

    return of_class(wish(completed(condition)).condition, 0)


@pytest.mark.parametrize("change", ["version", "weight", "shape", "grammar", "scales"])
def test_damaged_files(neural: NeuralModel, tmp_path: Path, change: str) -> None:
    path = tmp_path / "model.npz"
    save_neural(neural, path)
    with np.load(path, allow_pickle=False) as found:
        arrays = {name: found[name] for name in found.files}
    header = json.loads(arrays.pop("header").tobytes())
    if change == "version":
        header["version"] = 99
    elif change == "weight":
        arrays["weight_next"] = arrays["weight_next"] * np.float32("nan")
    elif change == "shape":
        arrays["weight_next"] = arrays["weight_next"][:-1]
    elif change == "grammar":
        header["grammar"][0]["<block>"] = ["nothing"]
    else:
        arrays["scales"] = arrays["scales"] * 0
    np.savez(path, header=np.frombuffer(json.dumps(header).encode(), np.uint8), **arrays)
    with pytest.raises(
        InputError, match=r"model\.npz: (is 'armillary neural trace model' version 99|was changed or damaged)"
    ):
        open_sampler(path)


def test_what_is_refused(neural: NeuralModel, corpus: Corpus) -> None:
    sampler = NeuralSampler(neural)
    for given, message in (
        ({"trace": "ddp"}, "trace ddp: a neural model makes none of files"),
        ({"sharding": "fsdp"}, "sharding fsdp: not in the corpus"),
    ):
        with pytest.raises(InputError, match=message):
            sampler.sample(given)
    with pytest.raises(InputError, match="temperature -1: expected 0 or more"):
        sampler.sample(NEW[0], temperature=-1)
    with pytest.raises(InputError, match="size 30"):
        train(corpus, size=30)
    with pytest.raises(InputError, match="no generated trace"):
        train(Corpus(corpus.vocabulary, []))


def test_without_pytorch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "torch", None)
    with pytest.raises(InputError, match=r"needs PyTorch: pip install armillary\[learn\]"):
        import_torch()


@NEEDS
@pytest.mark.slow
def test_a_trained_model_is_nearly_right(tmp_path: Path) -> None:
    """Of 24 conditions that the corpus lacks at least 20 are made, their steps within 5 % in the mean."""
    choices = {
        "layers": (4, 8, 12, 16), "hidden": (2048, 3072, 4096), "tp": (1, 2, 4), "pp": (1, 2), "dp": (1, 2, 4),
        "microbatches": (1, 2, 4, 6), "sharding": ("ddp", "fsdp"), "recompute": ("none", "full"),
    }  # fmt: skip
    lines = "\n".join(f"  {key}: [{', '.join(map(str, values))}]" for key, values in choices.items())
    (tmp_path / "plan.yaml").write_text(f"count: 160\nnodes: 8000\nchoices:\n{lines}\n")
    write_corpus(tmp_path / "corpus", [], [tmp_path / "plan.yaml"])
    corpus = read_corpus(tmp_path / "corpus")
    sampler = NeuralSampler(train(corpus, steps=600))
    held_out = Request(24, 9, 8000, {**choices, "layers": (6, 8, 10), "hidden": (2560, 4096)})
    found = measure(corpus, sampler.sample, [held_out], machines=("hgx-h100",))
    assert sum(not each.refused for each in found.compared) >= 20
    assert np.abs(found.errors("time", "made")).mean() < 0.05
    assert np.abs(found.errors("nodes", "made")).mean() < 0.05
    assert found.copies["made"] == 0
