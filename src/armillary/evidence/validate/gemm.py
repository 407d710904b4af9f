"""Measured GEMMs and attention of GPUs beside those of the compute model ``gpu``."""

from __future__ import annotations

import hashlib
import io
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

import numpy as np

from armillary.base.csv_text import CsvRows, check_columns, check_width, number_in
from armillary.base.errors import InputError
from armillary.base.hints import show
from armillary.compute.gpu.attention import context_seconds
from armillary.compute.gpu.device import Gpu, gpu_names, load_gpu
from armillary.compute.gpu.gemm import LOOPED, gemm_seconds
from armillary.compute.gpu.spread import kernel_spread
from armillary.compute.model import Floats, Ints
from armillary.compute.table_file import PRECISIONS
from armillary.evidence.calibrate import attention as attention_fit
from armillary.evidence.calibrate import gemm as gemm_fit
from armillary.evidence.calibrate.samples import measured_text
from armillary.evidence.validate.table import Bar, Progress, Row, Suite, Table

COLUMNS = ("device", "gemm_dtype", "m", "n", "k", "latency")
SOURCE = "aiconfigurator (ai-dynamo), cuBLASLt in TensorRT-LLM"
_PACKAGES = {
    ("A100", "SXM"): {"": "a100-sxm-80", "80": "a100-sxm-80", "40": "a100-sxm-40"},
    ("A100", "PCIE"): {"": "a100-pcie", "80": "a100-pcie", "40": "a100-pcie-40"},
    ("H100", "SXM"): {"": "h100-sxm", "80": "h100-sxm"},
    ("H100", "PCIE"): {"": "h100-pcie", "80": "h100-pcie"},
    ("H100", "NVL"): {"": "h100-nvl", "94": "h100-nvl"},
    ("V100", "SXM"): {"": "v100-sxm", "16": "v100-sxm", "32": "v100-sxm"},
    ("V100", "PCIE"): {"": "v100-pcie", "16": "v100-pcie", "32": "v100-pcie"},
    ("H200", "SXM"): {"": "h200-sxm", "141": "h200-sxm"},
    **{
        (name.upper(), "SXM"): {"": name}
        for name in ("b200", "gb200", "b300", "gb300", "mi300x", "mi325x", "mi355x")
    },
}
"""Chip and package -> GB of memory, where a name states them -> device."""
NINETY = 1.645
"""Standard deviations to each side that hold 90 % of a normal distribution."""
_LEAST_US = gemm_fit.LEAST_NS / 1e3


@dataclass
class _Column:
    """Measured GEMMs of one device and precision."""

    sizes: list[tuple[int, int, int]] = field(default_factory=list)
    us: list[float] = field(default_factory=list)


def device_of(name: str) -> Gpu | None:
    """Return the device that a file of measurements names, None of an unknown one."""
    short = name.strip()
    if short in gpu_names():
        return load_gpu(short)
    upper = short.upper()
    # Neither an H1000, a V100S nor a GH200 is one of them, and a slice of one is none.
    chip = next((own for own, _ in _PACKAGES if re.search(rf"(?<![A-Z0-9]){own}(?![A-Z0-9])", upper)), "")
    if not chip or re.search(r"\bMIG\b", upper):
        return None
    # NVL72 is a rack of modules, NVL a board.
    board = "PCIE" if "PCI" in upper else "NVL" if re.search(r"NVL(?!\d)", upper) else "SXM"
    memory = re.search(r"(\d+) ?GB\b", upper)
    sizes = _PACKAGES.get((chip, board), {})
    # Of chips with one memory only names may state it as they like.
    found = sizes.get(memory[1] if memory and len(sizes) > 1 else "")
    return load_gpu(found) if found else None


def run_gemm(files: Sequence[Path], progress: Progress, name: str = "gemm") -> Table:
    """Predict GEMMs: of a file that was fitted to, those that were held out; long and short ones are parts.

    Raises:
        InputError: a file is missing or malformed, or holds no GEMM.
    """
    # Whether any file is one that constants were fitted to.
    rows: list[Row] = []
    partly = False
    for done, path in enumerate(files):
        progress(done, len(files))
        text = measured_text(path)
        fitted = is_fitted(text)
        partly |= fitted
        for (device, word), column in _read(path, text).items():
            sizes, us = np.array(column.sizes, np.int64), np.array(column.us)
            # Of a fitted file only what no constant has seen.
            keep = gemm_fit.held_out(sizes) if fitted else np.full(len(us), True)
            rows += _rows(device, word, sizes[keep], us[keep])
    progress(len(files), len(files))
    if not rows:
        raise InputError(f"{', '.join(map(str, files))}: no GEMMs")
    what = (
        "a fifth of all shapes, which no constant has seen"
        if partly
        else "all GEMMs of the file, also such as the constants may have seen"
    )
    return Table(
        name,
        "GEMMs of unseen shapes",
        "us",
        SOURCE if partly else ", ".join(path.name for path in files),
        tuple(rows),
        "held out" if partly else "given",
        # 8 % mean: the bar of GEMMs.
        Bar(0.08),
        (
            f"Shown are {what}; fp8 includes the cast of the left operand, as the measurement does.",
            f"GEMMs of less than {_LEAST_US:g} us are a part of their own: launch and latency are much of them.",
            "The measurement goes round five copies of the weights, which the cache may keep.",
        ),
        _parts(name, rows, partly, Bar(0.08)),
    )


def _parts(name: str, rows: Sequence[Row], partly: bool, bar: Bar | None) -> tuple[Table, ...]:
    """Return a table of each group."""
    # A single group is the table itself.
    groups = list(dict.fromkeys(row.group for row in rows))
    if len(groups) < 2:
        return ()
    source = SOURCE if partly else ""
    return tuple(
        Table(
            f"{name} {group}",
            group,
            "us",
            source,
            tuple(row for row in rows if row.group == group),
            "held out" if partly else "given",
            bar,
        )
        for group in groups
    )


def _rows(device: str, word: str, sizes: Ints, us: Floats) -> list[Row]:
    gpu, precision = device_of(device), PRECISIONS.get(word.lower())
    reason = ""
    if gpu is None:
        reason = f"no device is known by the name '{device}'"
    elif precision is None or precision not in gpu.peaks:
        reason = f"{gpu.name} has no GEMMs in {word}"
    # By device and precision, as constants are.
    group = f"{gpu.name if gpu else device} {precision or word}"
    predicted = np.full(len(us), np.nan)
    if gpu and precision and not reason and len(us):
        predicted = np.frombuffer(_microseconds(device, precision, sizes.tobytes()))
    return [
        Row(
            f"{group} {m}x{n}x{k}",
            measured,
            found,
            group if measured >= _LEAST_US else f"{group}, below {_LEAST_US:g} us",
            *_interval(gpu, precision, found),
            reason=reason,
        )
        for (m, n, k), measured, found in zip(sizes.tolist(), us.tolist(), predicted.tolist(), strict=True)
    ]


@lru_cache(maxsize=64)
def _microseconds(device: str, precision: str, sizes: bytes) -> bytes:
    """Return the times of GEMMs: those of a device are shown alone and among those of all devices."""
    gpu = device_of(device)
    assert gpu is not None
    shapes = np.frombuffer(sizes, np.int64).reshape(-1, 3)
    # A fourth column: calls, 1 each.
    four = np.column_stack([shapes, np.ones(len(shapes))]).astype(float)
    residuals = gpu.residuals.get(precision)
    found: Floats = gemm_seconds(gpu, precision, four, copies=LOOPED, residuals=residuals)[0] * 1e6
    return found.tobytes()


def _interval(gpu: Gpu | None, precision: str | None, us: float) -> tuple[float, float]:
    """Return the ends of a 90 % interval of a predicted time, nan of an unknown one."""
    if gpu is None or precision is None or not us > 0:
        return math.nan, math.nan
    width = NINETY * kernel_spread(gpu, "gemm", precision, us * 1e3, alone=True)
    return us * math.exp(-width), us * math.exp(width)


def _read(path: Path, text: str) -> dict[tuple[str, str], _Column]:
    lines = CsvRows(path, ("" if line.startswith("#") else line for line in io.StringIO(text)))
    header = next((row for row in lines if any(row)), [])
    for name in COLUMNS:
        if name not in header:
            raise InputError(f"{path}: no column '{name}'; it has {', '.join(header) or 'none'}")
    check_columns(path, lines.line, header)
    place = [header.index(name) for name in COLUMNS]
    found: dict[tuple[str, str], _Column] = {}
    for line in lines:
        if not any(line):
            continue
        check_width(path, lines.line, line, header)
        device, word, *cells = (line[at] for at in place)
        *sizes, ms = (number_in(cell) or 0.0 for cell in cells)
        # Sizes below 1 or times that are no number would spoil the mean; larger ones are no GEMMs.
        fine = (*(1 <= size < 2**31 and size.is_integer() for size in sizes), 0 < ms * 1e3 < math.inf)
        if not all(fine):
            at = fine.index(False)
            name = COLUMNS[2 + at]
            expected = "ms above 0" if name == "latency" else "a whole number from 1 to 2147483647"
            raise InputError(f"{path}:{lines.line}: {name}: got {show(cells[at])}, expected {expected}")
        column = found.setdefault((device, word), _Column())
        column.sizes.append((int(sizes[0]), int(sizes[1]), int(sizes[2])))
        column.us.append(ms * 1e3)
    return found


def run_attention(files: Sequence[Path], progress: Progress) -> Table:
    """Predict prefills of 20 us and more on an H100: of the file that was fitted to, those that were held out.

    Raises:
        InputError: a file is missing or malformed, or holds no such kernel.
    """
    rows: list[Row] = []
    partly = False
    for done, path in enumerate(files):
        progress(done, len(files))
        text = measured_text(path)
        kernels = attention_fit.prefills_of(path, text)
        # Shorter kernels are mostly launch.
        keep = kernels.seconds * 1e6 >= _LEAST_US
        if is_fitted(text):
            partly = True
            keep &= attention_fit.held_out(kernels.table)
        kernels = kernels.part(keep)
        predicted = np.full(len(kernels.seconds), np.nan)
        for device, precision in sorted(set(zip(kernels.device, kernels.precision, strict=True))):
            gpu = device_of(device)
            mine = [
                at for at, own in enumerate(zip(kernels.device, kernels.precision, strict=True))
                if own == (device, precision)
            ]  # fmt: skip
            # Devices or precisions that are not known stay NaN: refused.
            if gpu and precision in gpu.peaks:
                predicted[mine] = context_seconds(gpu, precision, kernels.table[mine]) * 1e6
        rows += [
            Row(
                label, measured, found, _kind(label, precision),
                reason=f"{device} is not known" if math.isnan(found) else "",
            )
            for label, measured, found, precision, device in zip(
                kernels.labels, (kernels.seconds * 1e6).tolist(), predicted.tolist(), kernels.precision,
                kernels.device, strict=True,
            )
        ]  # fmt: skip
    progress(len(files), len(files))
    if not rows:
        raise InputError(f"{', '.join(map(str, files))}: no kernels of {_LEAST_US:g} us or more")
    return Table(
        "attention-h100",
        f"Prefill attention on an H100, {_LEAST_US:g} us and more",
        "us",
        "aiconfigurator (ai-dynamo), TensorRT-LLM" if partly else ", ".join(path.name for path in files),
        tuple(rows),
        "held out" if partly else "given",
        None,
        (
            "Windows of 128 tokens in fp8 run in kernels that gain little from them; the model does not know.",
            "Kernels with a cache in fp8 are taken to compute in fp8.",
        ),
        # No bar: prefills are shown, not judged.
        _parts("attention-h100", rows, partly, None),
    )


def _kind(label: str, precision: str) -> str:
    # A group of its own: the model does not know these kernels.
    return "fp8, window 128" if precision == "fp8" and ", window 128," in label else precision


def _suite(device: str, title: str) -> Suite:
    name = f"gemm-{device}"
    return Suite(
        name,
        f"GEMMs of unseen shapes on {title}",
        f"gemm/{device}.csv.gz",
        lambda files, progress: run_gemm(files, progress, name),
    )


SUITES: tuple[Suite, ...] = (
    _suite("a100", "A100"),
    _suite("h100", "H100"),
    _suite("b200", "B200"),
    Suite("gemm", "GEMMs of unseen shapes on all three", "gemm", run_gemm, COLUMNS),
    Suite(
        "attention-h100",
        "Prefill attention on H100",
        "aiconfigurator/h100_context_attention.csv.gz",
        run_attention,
        attention_fit.COLUMNS,
    ),
)


_DIGESTS = {
    # SHA-256 of the text, so that a renamed or unpacked file is still known.
    "04e356f529e9b12e": "gemm/a100.csv.gz",
    "21940ddba8ae8082": "gemm/h100.csv.gz",
    "1f0b61aa971ce00a": "gemm/b200.csv.gz",
    "4de1a99173bd4887": "aiconfigurator/h100_context_attention.csv.gz",
}


def is_fitted(text: str) -> bool:
    """Tell whether constants were fitted to rows of a file with this text."""
    # 16 digits suffice for a handful of files.
    return hashlib.sha256(text.encode()).hexdigest()[:16] in _DIGESTS
