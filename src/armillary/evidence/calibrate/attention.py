"""Fit the constants of fused attention: of prefills, and of the passes of training."""

from __future__ import annotations

import dataclasses
import functools
import io
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from armillary.base.csv_text import CsvRows, check_columns, check_width, number_in
from armillary.base.errors import InputError
from armillary.base.hints import show
from armillary.base.json_text import parse_json
from armillary.compute.gpu.attention import attention_seconds, context_seconds, scores
from armillary.compute.gpu.device import AttentionFit, Gpu
from armillary.compute.model import Floats, Ints
from armillary.evidence.calibrate.samples import measured_text

COLUMNS = (
    "device", "batch_size", "isl", "num_heads", "num_key_value_heads", "head_dim", "window_size", "attn_dtype",
    "kv_cache_dtype", "step", "latency",
)  # fmt: skip
"""Columns of a file of prefills; latency in ms."""
# Constants that prefills (PREFILL) and training passes (TRAINING) can tell; the others stay as the device has
# them.
PREFILL = ("rate", "score", "tile", "context_launch", "memory", "sharp", "other")
TRAINING = ("rate", "launch", "sharp", "backward_rate", "backward_other")
LARGEST = 2**53
"""Whole numbers below it are exact."""
# Kernels that a fit looks at, taken evenly from the file.
_MOST = 4000
# Shares of a peak stay below it, and smoothing exponents bounded; other constants may grow 30-fold.
HIGHEST = {
    "rate": 0.99,
    "backward_rate": 0.99,
    "memory": 1.0,
    "sharp": 9.0,
    "other": 2.0,
    "backward_other": 2.0,
}
"""Largest values of constants that a fit bounds; a device's file says why one stands there (``bounds``)."""


@dataclasses.dataclass(frozen=True)
class Kernels:
    """Measured kernels of fused attention.

    Attributes:
        table: (kernels, 9) as of `attention_seconds`.
        seconds: (kernels).
        precision: (kernels) of the operands.
        labels: (kernels) for people.
        device: (kernels) as the file names it.
    """

    table: Floats
    seconds: Floats
    precision: tuple[str, ...]
    labels: tuple[str, ...]
    device: tuple[str, ...]

    def part(self, which: NDArray[np.bool_]) -> Kernels:
        """Return the kernels that a mask selects."""
        # Masks select rows of arrays; tuples of texts need positions.
        at = np.flatnonzero(which).tolist()
        pick: Callable[[Sequence[str]], tuple[str, ...]] = lambda column: tuple(column[each] for each in at)  # noqa: E731
        return Kernels(
            self.table[which], self.seconds[which], pick(self.precision), pick(self.labels), pick(self.device)
        )


def read_prefills(path: Path) -> Kernels:
    """Read a file with `COLUMNS`, see `prefills_of`.

    Raises:
        InputError: it is missing or malformed.
    """
    return prefills_of(path, measured_text(path))


def prefills_of(path: Path, text: str) -> Kernels:
    """Return the kernels of the text of a file with `COLUMNS`.

    Kernels with a cache in fp8 compute in fp8 (what they are given in makes little difference).

    Raises:
        InputError: it is malformed.
    """
    # Lines of # are notes of whoever published the file.
    reader = CsvRows(path, ("" if line.startswith("#") else line for line in io.StringIO(text)))
    rows = [(reader.line, row) for row in reader if any(row)]
    head, header = rows[0] if rows else (1, [])
    for name in COLUMNS:
        if name not in header:
            raise InputError(f"{path}: no column '{name}'; it has {', '.join(header)[:400] or 'none'}")
    check_columns(path, head, header)
    for line, row in rows[1:]:
        check_width(path, line, row, header)
    place = {name: header.index(name) for name in COLUMNS}
    column = {name: [row[at] for _, row in rows[1:]] for name, at in place.items()}
    # All columns but the device and the two data types; None, of a cell that is no number, becomes NaN.
    number = {
        name: np.array([number_in(cell) for cell in column[name]], float)
        for name in COLUMNS[1:7] + COLUMNS[9:]
    }
    for name, values in number.items():
        none_is_fine = name in ("window_size", "step")
        wrong = ~((values >= 0 if none_is_fine else values > 0) & (values < LARGEST))
        if wrong.any():
            at = int(wrong.argmax())
            expected = f"a number {'of at least 0' if none_is_fine else 'above 0'}, below 2^53"
            raise InputError(
                f"{path}:{rows[1 + at][0]}: {name}: got {show(column[name][at])}, expected {expected}"
            )
    queries, width = number["isl"], number["head_dim"]
    # `step` is what is in the cache already: queries attend to it as well.
    keys = queries + number["step"]
    table = np.column_stack(
        [
            # Queries and values have the same width here; the pass is a forward one (0).
            number["batch_size"], number["num_heads"], number["num_key_value_heads"], queries, keys, width, width,
            np.zeros(len(keys)), scores(queries, keys, number["window_size"]),
        ]
    )  # fmt: skip
    # Kernels with a cache in fp8 compute in fp8, whatever attn_dtype says.
    precision = tuple("fp8" if each.startswith("fp8") else "bf16" for each in column["kv_cache_dtype"])
    labels = tuple(
        f"{b:g} x {q:g} tokens, {h:g}/{kv:g} heads of {d:g}, window {w:g}, {p}"
        for b, q, h, kv, d, w, p in zip(
            *(number[name] for name in ("batch_size", "isl", "num_heads", "num_key_value_heads", "head_dim")),
            number["window_size"], precision, strict=True,
        )
    )  # fmt: skip
    # ms to s.
    return Kernels(table, number["latency"] / 1e3, precision, labels, tuple(column["device"]))


def read_shares(path: Path) -> Kernels:
    """Read ``sdp_fwd`` and ``sdp_bwd`` of a system file of SimuMax.

    It states shares of the peak for the operations of all scores, 2.5 times as many backward, though a mask halves
    them.

    Raises:
        InputError: it is missing or malformed.
    """
    try:
        return _shares(parse_json(measured_text(path), path))
    except (ArithmeticError, AttributeError, KeyError, RecursionError, TypeError, ValueError) as error:
        raise InputError(f"{path}: no system file of SimuMax ({type(error).__name__}: {error})") from error


def _shares(document: Any) -> Kernels:
    table, seconds, labels = [], [], []
    operators = document["accelerator"]["op"]
    # Position in the pair is the flag of the backward pass.
    for backward, name in enumerate(("sdp_fwd", "sdp_bwd")):
        for key, share in operators[name]["accurate_efficient_factor"].items():
            # Keys are "batch=1, seq_len=4096, …".
            given = dict(re.findall(r"(\w+)=(\w+)", key))
            b, q, h, kv, dk, dv = (
                int(given[each])
                for each in ("batch", "seq_len", "head_num", "kv_head_num", "qk_head_dim", "v_head_dim")
            )
            # Operations of full scores, which is how the file counts; 2.5 times as many backward.
            flops = 2 * b * h * q * q * (dk + dv) * (2.5 if backward else 1)
            # The last column counts causal scores: the kernels run with a mask.
            table.append((b, h, kv, q, q, dk, dv, backward, q * (q + 1) / 2))
            seconds.append(flops / (operators[name]["tflops"] * 1e12 * share))
            labels.append(key)
    count = len(labels)
    return Kernels(np.array(table, float), np.array(seconds), ("bf16",) * count, tuple(labels), ("",) * count)


def held_out(table: Floats) -> NDArray[np.bool_]:
    """Return (kernels) which kernels are held out of all fits: a fifth, chosen by a hash."""
    # A hash of batch, heads, queries and width: neighbours in a sweep fall on both sides.
    whole: Ints = table.astype(np.int64)
    mixed = (
        whole[:, 0] * 73_856_093
        ^ whole[:, 1] * 19_349_663
        ^ whole[:, 3] * 83_492_791
        ^ whole[:, 5] * 49_979_687
        # >> 5: the low bits of products of even sizes are all 0.
    )
    found: NDArray[np.bool_] = (mixed >> 5) % 5 == 0
    return found


def fit_attention(
    gpu: Gpu, precision: str, kernels: Kernels, names: Sequence[str], *, prefill: bool
) -> AttentionFit:
    """Return constants `names` fitted to kernels of one precision, the others as they are.

    Raises:
        InputError: scipy is not there.
    """
    try:
        from scipy.optimize import least_squares
    except ImportError as error:
        raise InputError(
            "fitting needs scipy, which is not installed: pip install armillary[calibrate]"
        ) from error
    start = gpu.attention_fit(precision)
    # A regular stride keeps the spread of sizes.
    stride = max(1, len(kernels.seconds) // _MOST)
    # Logarithms: errors are relative, and constants positive.
    table, target = kernels.table[::stride], np.log(kernels.seconds[::stride])
    # SimuMax measures the passes of training under load, inference engines their prefills alone.
    predict = context_seconds if prefill else functools.partial(attention_seconds, power=gpu.power)

    def constants(at: Floats) -> AttentionFit:
        found = dict(zip(names, np.exp(at).tolist(), strict=True))
        if not prefill:  # the softmax of both passes is the same
            found["backward_score"] = start.score
        return dataclasses.replace(start, **found)

    def off(at: Floats) -> Floats:
        result: Floats = np.log(predict(gpu, precision, table, constants(at))) - target
        return result

    # A constant of 0 has no logarithm.
    first = np.array([max(getattr(start, name), 1e-13) for name in names])
    # `sharp` is an exponent that joins two regimes: near 1 it would just add both.
    low = np.log([1.05 if name == "sharp" else value / 30 for name, value in zip(names, first, strict=True)])
    high = np.log([HIGHEST.get(name, value * 30) for name, value in zip(names, first, strict=True)])
    # soft_l1 with 5 %: outliers count linearly; steps of 1e-3 of a logarithm see past the rounding of waves
    # and tiles.
    found: Any = least_squares(
        off, np.clip(np.log(first), low + 1e-6, high - 1e-6), bounds=(low, high), loss="soft_l1", f_scale=0.05,
        diff_step=1e-3, x_scale=0.2, max_nfev=100,
    )  # fmt: skip
    return constants(found.x)
