"""Keyed pseudo-random numbers and words: without the key they cannot be told from random ones."""

from __future__ import annotations

from hashlib import blake2b

import numpy as np
from numpy.typing import NDArray

I64 = NDArray[np.int64]
Floats = NDArray[np.float64]
_ODD = (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB)


def digest(key: str, *parts: object) -> int:
    """Return a 64-bit keyed hash of `parts`, which name the purpose."""
    # The separator keeps ("ab", "c") and ("a", "bc") apart.
    # A key of the command line may be any bytes.
    text = "\0".join((key, *map(str, parts))).encode("utf-8", "surrogatepass")
    return int.from_bytes(blake2b(text, digest_size=8).digest(), "little")


def word(key: str, text: str) -> str:
    """Return the replacement of a text: 12 letters and digits that begin with a letter."""
    return f"n{digest(key, 'word', text):016x}"[:12]


def generator(key: str, *parts: object) -> np.random.Generator:
    """Return a random generator for one purpose."""
    return np.random.default_rng(digest(key, *parts))


def uniform(key: int, values: I64) -> Floats:
    """Return a number in [0, 1) per value, equal for equal values: SplitMix64 (Steele et al., OOPSLA 2014)."""
    with np.errstate(over="ignore"):
        mixed = (values.view(np.uint64) ^ np.uint64(key)) + np.uint64(_ODD[0])
        mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(_ODD[1])
        mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(_ODD[2])
        mixed ^= mixed >> np.uint64(31)
    # A float64 holds 53 bits exactly: more would round up to 1.0.
    return (mixed >> np.uint64(11)).astype(np.float64) / 2.0**53
