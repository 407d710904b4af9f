"""Files of neural models: those of their library (`learned.model_file`) with a grammar and weights, no pickle."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np

from armillary.lab.learned import model_file as library_file
from armillary.lab.learned.archive import reading, whole, write_archive
from armillary.lab.learned.expressions import library
from armillary.lab.learned.neural.grammar import Grammar
from armillary.lab.learned.neural.inputs import width
from armillary.lab.learned.neural.network import NeuralModel, Sizes
from armillary.lab.learned.neural.sample import NeuralSampler
from armillary.lab.learned.sample import Sampler

FORMAT = "armillary neural trace model"
VERSION = 3
_LARGEST = 1 << 24
"""Largest value of any size; those of the tests are some thousands."""


def save_neural(model: NeuralModel, path: Path) -> None:
    """Write a model.

    Raises:
        InputError: the file cannot be written.
    """
    header, arrays = library_file.contents_of(model.base)
    header |= {
        "format": FORMAT, "version": VERSION, "grammar": model.grammar.to_json(), "sizes": model.sizes.to_json(),
    }  # fmt: skip
    arrays |= {f"weight_{name}": value for name, value in model.weights.items()}
    write_archive(path, header, {**arrays, "scales": model.scales})


def load_neural(path: Path) -> NeuralModel:
    """Read a model.

    Raises:
        InputError: the file is no model, of another version, or damaged.
    """
    return library_file.read_contents(path, {FORMAT: (VERSION, _model)})


def open_sampler(path: Path) -> Sampler:
    """Return a sampler of a model of either kind.

    Raises:
        InputError: the file holds no model.
    """
    return library_file.read_contents(
        path,
        {
            library_file.FORMAT: (
                library_file.VERSION,
                lambda *found: Sampler(library_file.model_of(*found)),
            ),
            FORMAT: (VERSION, lambda *found: NeuralSampler(_model(*found))),
        },
    )


def _model(header: Any, arrays: dict[str, Any], where: str) -> NeuralModel:
    base = library_file.model_of(header, arrays, where)
    with reading(where, "grammar"):
        grammar = Grammar.from_json(header["grammar"], list(base.roles))
    with reading(where, "sizes"):
        sizes = Sizes(
            **{each.name: whole(header["sizes"][each.name], each.name, 0, _LARGEST) for each in fields(Sizes)}
        )
    weights = {
        name.removeprefix("weight_"): value for name, value in arrays.items() if name.startswith("weight_")
    }
    with reading(where, "weights"):
        if {name: value.shape for name, value in weights.items()} != sizes.shapes():
            raise ValueError("expected those of the sizes")
        # One NaN would spread to every choice.
        if not all(value.dtype == np.float32 and np.isfinite(value).all() for value in weights.values()):
            raise ValueError("expected finite numbers of 32 bits")
    model = NeuralModel(base, grammar, sizes, weights, arrays["scales"])
    lexicon = model.lexicon()
    # The sizes must be those that the library in the same file gives, or indices would run out of the weights.
    known = (lexicon.size, lexicon.near_size, width(), len(library()), lexicon.candidates, lexicon.residuals)
    if known != (
        sizes.tokens,
        sizes.near,
        sizes.features,
        sizes.expressions,
        sizes.candidates,
        sizes.residuals,
    ):
        raise ValueError(f"sizes {known}")
    scales = model.scales
    if scales.shape != (2, width()) or not np.isfinite(scales).all() or not (scales[1] > 0).all():
        raise ValueError("scales")
    return model
