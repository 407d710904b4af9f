"""Numbers and words that follow from a key: whoever lacks it cannot tell them from random ones."""

from __future__ import annotations

from hashlib import blake2b

import numpy as np
from numpy.typing import NDArray

I64 = NDArray[np.int64]
Floats = NDArray[np.float64]
_ODD = (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB)


def digest(key: str, *parts: object) -> int:
    """Return 64 bits that follow from a key and what they are for."""
    text = "\0".join((key, *map(str, parts))).encode()
    return int.from_bytes(blake2b(text, digest_size=8).digest(), "little")


def word(key: str, text: str) -> str:
    """Return what stands for a text: 12 letters and digits that begin with a letter."""
    return f"n{digest(key, 'word', text):016x}"[:12]


def generator(key: str, *parts: object) -> np.random.Generator:
    """Return a source of random numbers for one purpose."""
    return np.random.default_rng(digest(key, *parts))


def uniform(key: int, values: I64) -> Floats:
    """Return a number from 0 to 1 for every value, equal where values are: SplitMix64 (Steele et al., OOPSLA 2014)."""
    with np.errstate(over="ignore"):
        mixed = (values.view(np.uint64) ^ np.uint64(key)) + np.uint64(_ODD[0])
        mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(_ODD[1])
        mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(_ODD[2])
        mixed ^= mixed >> np.uint64(31)
    return (mixed >> np.uint64(11)).astype(np.float64) / 2.0**53
