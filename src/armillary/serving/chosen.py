"""How much longer the GEMM kernels that an inference engine chooses take than the best ones, by size.

A library has some kernels for each precision, and rules that choose one by the sizes of a GEMM. Which sizes get a slow
one follows from no data sheet: ``chosen.yaml`` has factors at a few sizes, fitted to the tables of each engine.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from armillary.base import portable
from armillary.base.document import read_document
from armillary.compute.model import Floats

FILE = Path(__file__).with_name("chosen.yaml")
TOKENS = (32, 128, 512, 4096)
WIDTHS = (512, 2048, 8192, 32768)
US = 1e3


@dataclass(frozen=True)
class Chosen:
    """Factors of the kernels of one precision.

    Attributes:
        factors: By tokens, outputs and inputs: (`TOKENS`, `WIDTHS`, `WIDTHS`).
        apart: ns that the table times besides, and runs do not have.
    """

    factors: Floats
    apart: float

    def ns(self, sizes: Floats, ns: Floats) -> Floats:
        """Return (GEMMs) ns of GEMMs of (GEMMs, 3) m, n and k, which with the best kernels take `ns`."""
        axes = [_between(sizes[:, at], knots) for at, knots in enumerate((TOKENS, WIDTHS, WIDTHS))]
        found = np.zeros(len(sizes))
        for corner in np.ndindex(2, 2, 2):
            at = tuple(first + step for (first, _), step in zip(axes, corner, strict=True))
            share = np.ones(len(sizes))
            for (_, beyond), step in zip(axes, corner, strict=True):
                share = share * (beyond if step else 1 - beyond)
            found = found + share * self.factors[at]
        # Where the kernel that is apart is most of a row, what is left of it is not known.
        return np.asarray(np.maximum((ns + self.apart) * found - self.apart, ns * self.factors.min()))


def _between(sizes: Floats, knots: tuple[int, ...]) -> tuple[NDArray[np.int64], Floats]:
    """Return the knot before each size, and how far it is on the way to the next; beyond the ends, there."""
    at = portable.log2(np.array(knots, np.float64))
    place = np.clip(portable.log2(np.maximum(sizes.astype(np.float64), 1.0)), at[0], at[-1])
    first = np.clip(np.searchsorted(at, place, side="right") - 1, 0, len(at) - 2)
    return first, (place - at[first]) / (at[first + 1] - at[first])


@functools.cache
def chosen(device: str, engine: str, kind: str) -> Chosen | None:
    """Return the factors of an engine's kernels on a device that was measured; None: it has no table of this kind."""
    found = read_document(FILE, "GEMMs of engines", "yaml").data["devices"]
    own = found.get(device, {}).get(engine, {}).get(kind)
    if own is None:
        return None
    shape = (len(TOKENS), len(WIDTHS), len(WIDTHS))
    return Chosen(np.array(own["factors"], np.float64).reshape(shape), US * own.get("apart", 0.0))
