"""Trains the network on a corpus with AdamW (Loshchilov and Hutter, 2019) and a cosine schedule that ends at 0."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Sequence
from itertools import pairwise
from math import cos, pi
from typing import Any

import numpy as np

from armillary.base.errors import InputError
from armillary.lab.learned.corpus import Corpus
from armillary.lab.learned.expressions import library
from armillary.lab.learned.neural import batches
from armillary.lab.learned.neural.examples import Examples, PieceExample, cut, examples_of, programs_of
from armillary.lab.learned.neural.grammar import Grammar
from armillary.lab.learned.neural.inputs import features, scales, varied, width
from armillary.lab.learned.neural.lexicon import Lexicon
from armillary.lab.learned.neural.network import NeuralModel, Sizes, initial
from armillary.lab.learned.neural.network_torch import LOSSES, import_torch, piece_losses, program_losses
from armillary.lab.learned.train import train as train_library

STEPS = 2000
WIDTH = 64
_RATE = 4e-3
_WARMUP = 50
_PROGRAMS, _PIECES = 24, 128
"""Sequences in a training step."""
_VARIED = 12
"""Varied conditions of each class, see `varied`; half of the examples have one of them, so that no count is memorised
for the condition that it was seen with."""
_HELD_OUT = 10
"""One trace in so many is held out for the loss that `about` states."""


def train(
    corpus: Corpus,
    *,
    seed: int = 0,
    steps: int = STEPS,
    size: int = WIDTH,
    layers: int = 2,
    threads: int = 1,
    stepped: Callable[[int], None] = lambda steps: None,
) -> NeuralModel:
    """Fit a model.

    Args:
        corpus: The traces; those of files are left to the statistical model.
        seed: Seed of the first weights and of the order of examples.
        steps: Steps of gradient descent.
        size: Width of the network, a multiple of 4.
        layers: Layers of the network.
        threads: Threads of PyTorch; another number may change the last digits.
        stepped: Called with the number of steps done since its last call.

    Raises:
        InputError: there is no PyTorch, or the corpus has no trace that was generated.
    """
    torch = import_torch()
    if size < 4 or size % 4 or steps < 1 or layers < 1:
        raise InputError(f"size {size}, layers {layers}, steps {steps}: expected positive numbers, size by 4")
    if all(record.rank_graph for record in corpus.records):
        raise InputError("the corpus has no generated trace, expected one at least: `--generate PLAN.yaml`")
    base = train_library(corpus, seed=seed)
    conditions, record, parts = cut(corpus)
    programs = programs_of(conditions, [pieces for _, pieces in parts])
    grammar = Grammar(list(base.roles))
    for program in programs:
        grammar.learn(program)
    lexicon = Lexicon(base, grammar.blocks)
    examples = examples_of(parts, conditions, record, programs, lexicon)
    # `Grammar.allowed` closes a program from twice the longest on; 16 more leave room to close what is open.
    positions = 1 + max(
        2 * grammar.longest + 16, *(len(s) for each in base.roles.values() for s in each.symbols)
    )
    sizes = Sizes(
        size, layers, 4, positions, lexicon.size, lexicon.near_size, width(), len(library()), lexicon.candidates,
        lexicon.residuals,
    )  # fmt: skip
    # A stream of its own: the varied conditions do not depend on what else draws from the seed.
    rng = np.random.default_rng([seed, 1])
    found = features(conditions)
    other = [features([varied(each, rng) for each in conditions]) for _ in range(_VARIED)]
    table = scales(found)
    inputs = (np.stack([found, *other]) - table[0]) / table[1]
    weights = {name: torch.tensor(value, requires_grad=True) for name, value in initial(sizes, seed).items()}
    threads_before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        about = _fit(torch, weights, sizes, examples, inputs, lexicon, steps, seed, stepped)
    finally:
        torch.set_num_threads(threads_before)
    parameters = sum(value.numel() for value in weights.values())
    base.about["network"] = [
        f"width {size}",
        f"{layers} layers",
        f"{parameters:,} parameters",
        f"{steps:,} steps",
    ]
    base.about |= about
    arrays = {name: value.detach().numpy() for name, value in weights.items()}
    return NeuralModel(base, grammar, sizes, arrays, table)


def _fit(
    torch: Any,
    weights: dict[str, Any],
    sizes: Sizes,
    examples: Examples,
    inputs: Any,
    lexicon: Lexicon,
    steps: int,
    seed: int,
    stepped: Callable[[int], None],
) -> dict[str, list[str]]:
    rng = np.random.default_rng(seed)
    traces = sorted(set(examples.record))
    # Whole traces are held out: classes of one trace are too alike to test on one another.
    held = set(rng.permutation(traces)[: len(traces) // _HELD_OUT].tolist())
    own = [at for at, trace in enumerate(examples.record) if trace not in held]
    other = [at for at, trace in enumerate(examples.record) if trace in held]
    by_role: dict[int, list[int]] = defaultdict(list)
    rest = []
    for number, piece in enumerate(examples.pieces):
        if examples.record[piece.at] in held:
            rest.append(number)
        else:
            by_role[piece.role].append(number)
    roles = [by_role[role] for role in sorted(by_role)]
    optimizer = torch.optim.AdamW(list(weights.values()), lr=_RATE, betas=(0.9, 0.98), weight_decay=0.01)

    def loss(programs: list[int], pieces: list[int], condition: Any) -> list[Any]:
        found = program_losses(
            torch, weights, sizes, batches.programs(examples, programs, condition, lexicon)
        )
        # Short and long pieces are batched apart, as most of a long row would be padding.
        chosen = sorted((examples.pieces[at] for at in pieces), key=lambda each: len(each.symbols))
        ends = [0, *(at for at in _cuts(chosen)), len(chosen)]
        parts = [
            piece_losses(torch, weights, sizes, batches.pieces(chosen[a:b], condition, lexicon))
            for a, b in pairwise(ends)
            if b > a
        ]
        return [*found, *(sum(each) / len(pieces) for each in zip(*parts, strict=True))]

    every = np.arange(inputs.shape[1])
    for step in range(steps):
        warm = min(1.0, (step + 1) / _WARMUP)
        for group in optimizer.param_groups:
            group["lr"] = _RATE * warm * 0.5 * (1 + cos(pi * step / steps))
        # 0, the true condition, for half of the draws; otherwise one of the varied ones.
        turn = np.maximum(0, rng.integers(-_VARIED, _VARIED, len(every)) + 1)
        # Every role as often, however rare its pieces are.
        picked = [
            pieces[int(rng.integers(len(pieces)))]
            for at in range(_PIECES)
            for pieces in (roles[at % len(roles)],)
        ]
        losses = loss(
            rng.choice(own, min(_PROGRAMS, len(own)), replace=False).tolist(), picked, inputs[turn, every]
        )
        total = sum(losses)
        optimizer.zero_grad(set_to_none=True)
        total.backward()
        torch.nn.utils.clip_grad_norm_(list(weights.values()), 1.0)
        optimizer.step()
        stepped(1)
    about = {"loss": _shown(losses)}
    if held:
        with torch.no_grad():
            shown = rest if len(rest) <= 2000 else rng.choice(rest, 2000, replace=False).tolist()
            about[f"loss of {len(held)} held out"] = _shown(loss(other[:400], shown, inputs[0]))
    return about


def _shown(losses: Sequence[Any]) -> list[str]:
    return [f"{name} {float(each.detach()):.2g}" for name, each in zip(LOSSES, losses, strict=True)]


def _cuts(pieces: Sequence[PieceExample]) -> list[int]:
    lengths = [len(each.symbols) for each in pieces]
    return [bisect_right(lengths, most) for most in (3, 16)]
