"""Which experts the tokens of a step choose, and what of that the busiest device gets.

A token chooses some experts, each at most once, more popular ones more often, and independently of other tokens. Where
whole experts are divided over devices, all wait for the one that gets most tokens.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from armillary.base import portable
from armillary.base.csv_text import CsvRows
from armillary.base.document import read_text
from armillary.base.errors import InputError
from armillary.compute.model import Floats

LARGEST = (0.0, 0.564, 1.029, 1.424, 1.766, 2.070, 2.343, 2.594, 2.826)
"""Mean of the largest of 1, 2, 4 ... 256 normal deviates."""
SKEW = 0.48
"""Experts are chosen with odds u / (1 - u) to this power, of u from 0 to 1: touches as many as the power laws 1.01 and
1.2 of the tables of kernels, from 48 to 512 tokens (0.32 to 0.56, by number of experts)."""
MOST_LAYERS = 1024
"""Layers of a file of counts."""
SURE = 1 - 2.0**-40
"""The largest chance: a logarithm is taken of what is left."""


@dataclass(frozen=True)
class Routed:
    """Experts of a model on one device.

    Attributes:
        count: Experts of a layer.
        top_k: Of them for a token.
        hidden: Width of a token.
        size: Width of an expert.
        ep: Devices over which whole experts are divided; 1: each has a part of all.
        tp: Devices of the replica.
        stored: Kind of `armillary.serving.kernels.EXPERTS`.
        ranks: Of them that have requests of their own, whose tokens all meet here; 1: all have the same.
        counts: How often each expert was chosen, a row a layer; empty: some more often, as in tables of kernels.
        redundant: Further copies of experts that are chosen often, on all devices together.
    """

    count: int
    top_k: int
    hidden: int
    size: int
    ep: int
    tp: int
    stored: str
    ranks: int = 1
    counts: tuple[tuple[float, ...], ...] = ()
    redundant: int = 0

    @property
    def width(self) -> float:
        """Columns of an expert on a device."""
        return self.size * self.ep / self.tp

    @property
    def copies(self) -> float:
        """Experts on all devices, for each of the model."""
        return 1 + self.redundant / self.count

    @cached_property
    def layers(self) -> tuple[Floats, ...]:
        """(devices, experts of each) With which a token chooses each expert of a device, for each layer of `counts`."""
        if not self.counts:
            share = (np.arange(self.count) + 0.5) / self.count
            liked = portable.power(share / (1 - share), SKEW)
            # Dealt out to the devices, so that all have the same kinds; see `unequal`.
            return (self._placed(liked.reshape(-1, self.ep).T.ravel()),)
        return tuple(self._placed(np.array(each, float)) for each in self.counts)

    def _placed(self, loads: Floats) -> Floats:
        chances = np.minimum(loads * (self.top_k / math.fsum(loads)), SURE)
        if not self.redundant:
            return chances.reshape(self.ep, -1)
        return balanced(chances, self.count + self.redundant, self.ep)

    @cached_property
    def unequal(self) -> float:
        """Variance of the share of a device, over its square, where it is chance which experts it has."""
        if self.ep == 1 or self.counts or self.redundant:
            return 0.0
        mean = self.top_k / self.count
        return math.fsum((self.layers[0].ravel() / mean - 1) ** 2) / self.count * self.ep / self.count

    def busiest(self, tokens: int) -> list[tuple[float, float]]:
        """Return, of each layer, how many experts of the busiest device so many tokens choose, and how often in all."""
        return [self._busiest(tokens, each) for each in self.layers]

    def _busiest(self, tokens: int, layer: Floats) -> tuple[float, float]:
        means = [math.fsum(chances) for chances in layer]
        order = sorted(range(len(layer)), key=lambda device: -means[device])
        rows = 0.0
        # The largest of some is at least what it is if all have the mean of the least of them.
        for among, device in enumerate(order, 1):
            mean = means[device]
            # Tokens choose without replacement, so devices vary less than if they did not.
            varies = mean * (1 - mean / self.top_k) * (self.count - self.top_k) / max(1, self.count - 1)
            varies = tokens * max(0.0, varies) + self.unequal * (tokens * mean) ** 2
            rows = max(rows, tokens * mean + largest(among) * math.sqrt(varies))
        own = layer[order[0]]
        rows = min(rows, tokens * float(min(self.top_k, len(own))))
        scaled = np.minimum(own * (rows / (tokens * means[order[0]])), SURE)
        return math.fsum(1 - portable.power(1 - scaled, float(tokens))), rows


def balanced(loads: Floats, slots: int, devices: int) -> Floats:
    """Return (devices, slots of each) the loads of experts of which some have copies, which divide their load.

    As DeepSeek's load balancer for experts (EPLB) does within a group: each further slot goes to the expert with the
    most load a copy, then each copy, the largest first, to the device with the least load that has room.
    """
    copies = np.ones(len(loads), np.int64)
    for _ in range(slots - len(loads)):
        copies[(loads / copies).argmax()] += 1
    parts = np.repeat(loads / copies, copies)
    room, taken, sums = slots // devices, [0] * devices, [0.0] * devices
    found = np.zeros((devices, room))
    for part in parts[np.argsort(-parts, kind="stable")]:
        at = min((d for d in range(devices) if taken[d] < room), key=lambda d: sums[d])
        found[at, taken[at]] = part
        taken[at] += 1
        sums[at] += float(part)
    return found


def read_counts(path: str | Path, experts: int) -> tuple[tuple[float, ...], ...]:
    """Return how often each expert of each layer was chosen, of a CSV file with columns layer, expert and count.

    Raises:
        InputError: it cannot be read, a row is wrong, or a layer has no count above 0.
    """
    rows = CsvRows(Path(path), read_text(Path(path), "counts of experts").splitlines())
    header, layers = next(rows, []), dict[int, list[float]]()
    if not {"layer", "expert", "count"} <= set(header):
        raise InputError(f"{path}: got columns {', '.join(header) or 'none'}, expected layer, expert, count")
    for row in rows.named(header):
        layer, expert, count = (row[name].strip() for name in ("layer", "expert", "count"))
        if not all(each.isascii() and each.isdecimal() and len(each) < 16 for each in (layer, expert, count)):
            raise InputError(
                f"{path}:{rows.line}: got '{layer}', '{expert}', '{count}', expected whole numbers, e.g. 3, 17, 12040"
            )
        if int(expert) >= experts or int(layer) >= MOST_LAYERS:
            raise InputError(
                f"{path}:{rows.line}: got layer {layer}, expert {expert}, expected layers below {MOST_LAYERS} and "
                f"experts below {experts}"
            )
        layers.setdefault(int(layer), [0.0] * experts)[int(expert)] += int(count)
    for layer_of, counts in layers.items():
        if not any(counts):
            raise InputError(f"{path}: layer {layer_of}: got no count above 0, expected one")
    if not layers:
        raise InputError(f"{path}: has no row, expected a count of each expert of a layer")
    return tuple(tuple(layers[each]) for each in sorted(layers))


def largest(count: int) -> float:
    """Return the mean of the largest of so many normal deviates."""
    at = portable.log2(float(count))
    low = min(int(at), len(LARGEST) - 2)
    return LARGEST[low] + (LARGEST[low + 1] - LARGEST[low]) * (at - low)
