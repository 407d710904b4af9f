"""GPUs as data: what their data sheets say, and the constants of their kernels.

A file is ``devices/NAME.yaml`` or of a user. With ``like: NAME`` what it leaves out is taken from that device: shares
of peaks as they are, what is per SM scaled by the peak of an SM.

``memory.capacity`` is what programs find, and not what the data sheet says: an H100 of 80 GB has 80 GiB, of which its
driver keeps 0.9 GiB. Files name the published number beside it; drivers differ by up to 0.5 %.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from armillary.base import portable
from armillary.base.document import read_document
from armillary.base.errors import InputError, nearest, one_of
from armillary.compute.gpu.power import VOLTAGE, Power
from armillary.compute.gpu.read import Reader
from armillary.compute.gpu.residuals import Residuals

FOLDER = Path(__file__).parent / "devices"
SUBSTITUTE = {"fp4": ("fp8", "bf16"), "fp8": ("bf16",), "fp32": ("bf16",), "bf16": ()}
"""Precision -> those whose constants it takes where it has none."""
SECOND = 1e9
"""ns."""


@dataclass(frozen=True)
class GemmFit:
    """Constants of GEMMs of one precision.

    Attributes:
        rate: Share of the peak that the tensor cores reach.
        feed: Bytes/s that an SM takes in operands.
        step: s that 64 of k take in a tile at least, while it has its SM for itself.
        tile: s of filling the pipeline and writing the result of a tile.
        launch: s of a kernel besides.
        memory: Share of the memory bandwidth that GEMMs reach.
        sharp: Exponent by which limits that lie close together add up: infinite is the largest alone.
        drop: Share by which a long GEMM is slower, since clocks sink under load.
        after: s after which half of `drop` is there.
        split: s of summing up the parts of a GEMM whose k is split.
        cast: s of making the left operand of that precision before; 0: it is.
        cast_memory: Share of the memory bandwidth that this reaches.
        area: Share of `tile` that grows with the size of a tile; the rest is the same for all.
        overlap: Share of `tile` that the next tile of an SM hides.
        cached: How many times as fast as the memory the cache delivers what it holds.
        again: Share of the operands that waves of tiles read again, past the cache, that comes from the memory; 0 where
            a library orders tiles so that waves share their operands.
        ramp: s that the memory loses until it is at its rate: a GEMM that moves little data reaches half of it.
        part: Least elements of k in a part where tiles of the whole k keep all units busy, before a library cuts k; 0:
            no more than elsewhere.
        vector: s of a GEMM of one row, by kernels without tiles; 0: there are none.
        vector_step: s that 64 of k take in them at least.
    """

    rate: float
    feed: float
    step: float
    tile: float
    launch: float
    memory: float
    sharp: float
    drop: float
    after: float
    split: float
    cast: float = 0.0
    cast_memory: float = 1.0
    area: float = 0.0
    overlap: float = 0.0
    cached: float = 1.0
    again: float = 0.0
    ramp: float = 0.0
    part: float = 0.0
    vector: float = 0.0
    vector_step: float = 0.0


@dataclass(frozen=True)
class AttentionFit:
    """Constants of fused attention of one precision.

    Attributes:
        rate: Share of the peak that the two GEMMs reach.
        score: s that an SM spends on the softmax of a score.
        tile: s of a tile of queries besides.
        launch: s of a kernel besides.
        memory: Share of the memory bandwidth.
        sharp: As of `GemmFit`.
        other: Time of heads of other than 128 elements, which libraries tune their kernels for less.
        backward_rate: `rate` of the backward pass, of its five GEMMs.
        backward_score: `score` of it.
        backward_other: `other` of it.
        context_launch: s of what an inference engine does before a prefill (rotary embedding, cache).
    """

    rate: float
    score: float
    tile: float
    launch: float
    memory: float
    sharp: float
    backward_rate: float
    backward_score: float
    other: float = 1.0
    backward_other: float = 1.0
    context_launch: float = 0.0


@dataclass(frozen=True)
class Factors:
    """What times are multiplied by where kernels run in training, and not alone.

    Attributes:
        sustained: Share of the clocks that the fitted constants hold for.
        gemm: Factor of GEMMs.
        attention: Factor of fused attention.
        memory: Factor of kernels that are bound by memory.
    """

    sustained: float = 1.0
    gemm: float = 1.0
    attention: float = 1.0
    memory: float = 1.0


@dataclass(frozen=True)
class Gpu:
    """A GPU.

    Attributes:
        name: Name of its file.
        title: For people.
        peaks: Precision -> FLOP/s.
        bandwidth: Bandwidth of the memory, bytes/s.
        capacity: Memory that programs find, bytes, as `torch.cuda.get_device_properties` states it; 0: not known.
        sms: Streaming multiprocessors.
        tiles: Rows and columns of the tiles of GEMMs, and the SMs that share one.
        depth: Bytes of k in a step.
        load: Bytes at multiples of which rows must begin to be read at full rate; 1: anywhere (compilers pad).
        shared: Results of the tiles that a library takes to share an SM, when it counts full waves; 0: its kernels
            take one tile after another.
        gemm: Constants by precision.
        attention: Constants by precision.
        layouts: Time of ``input`` and ``weight`` gradients and of ``grouped`` GEMMs over that of a forward one of
            the same sizes and bytes.
        share: Share of the memory bandwidth that kernels bound by it reach.
        cache: Capacity of the cache that all SMs share, bytes; 0: not known, nothing is found there.
        launch: s that every kernel takes besides.
        power: What it may draw, and would; None: clocks stay under any load.
        basis: ``measured``: kernels of this device were; ``sibling``: of one with as many SMs, and other clocks,
            memory or power; ``derived``: of another one that it is like; ``sheet``: nothing but the data sheet is
            known.
        spread: Class of kernels -> standard deviation of ln(measured / predicted); see `kernel_spread`.
        residuals: What GEMMs that are timed by themselves take besides, by precision.
        factors: See `Factors`.
        like: Device that absent constants are taken from; "": none is absent.
        derived: Whether the constants of GEMMs are among them.
        fitted: For each part what it was fitted to, and the errors: for people.
    """

    name: str
    title: str
    peaks: Mapping[str, float]
    bandwidth: float
    capacity: int
    sms: int
    tiles: tuple[tuple[int, int, int], ...]
    depth: int
    gemm: Mapping[str, GemmFit]
    attention: Mapping[str, AttentionFit]
    layouts: Mapping[str, float]
    share: float
    launch: float
    load: int = 16
    shared: int = 0
    factors: Factors = field(default_factory=Factors)
    like: str = ""
    derived: bool = False
    fitted: Mapping[str, Any] = field(default_factory=dict)
    cache: int = 0
    power: Power | None = None
    basis: str = "measured"
    spread: Mapping[str, float] = field(default_factory=dict)
    residuals: Mapping[str, Residuals] = field(default_factory=dict)

    def gemm_fit(self, precision: str, scaling: str = "") -> GemmFit:
        """Return the constants of a precision, or of the nearest that has some.

        Args:
            precision: Of the operands.
            scaling: Recipe by which other kernels have quantised them; "": the GEMM casts one of them before.
        """
        names = (precision, *SUBSTITUTE[precision])
        fit = next(self.gemm[each] for each in names if each in self.gemm)
        if not scaling:
            return fit
        # Of a kernel of one operand and its cast, measured together, what is there however small the operand is all
        # cast, but for the launch of any GEMM.
        fit = self.gemm.get(f"{precision} {scaling}", fit)
        # Who quantises apart calls cuBLAS, whose waves share operands; those of the measured CUTLASS kernels do not.
        return dataclasses.replace(fit, cast=0.0, again=0.0, launch=min(fit.launch, self.gemm["bf16"].launch))

    def attention_fit(self, precision: str) -> AttentionFit:
        """Return the constants of a precision, or of the nearest that has some."""
        return next(
            self.attention[each] for each in (precision, *SUBSTITUTE[precision]) if each in self.attention
        )


@functools.cache
def gpu_names() -> tuple[str, ...]:
    """Return the names of the devices that come with the package."""
    return tuple(sorted(path.stem for path in FOLDER.glob("*.yaml")))


def load_gpu(name: str, folder: Path = Path()) -> Gpu:
    """Return a device.

    Args:
        name: One of `gpu_names`, or the path of a YAML file.
        folder: That a path is relative to.

    Raises:
        InputError: there is none, or its file is wrong.
    """
    if name in gpu_names():
        return _built_in(name)
    if not name.endswith((".yaml", ".yml")):
        raise InputError(
            f"no device '{name}'{nearest(name, gpu_names())}, expected {one_of(gpu_names())}, or a .yaml file"
        )
    return _read(folder / name, ())


@functools.cache
def _built_in(name: str) -> Gpu:
    return _read(FOLDER / f"{name}.yaml", ())


def _read(path: Path, below: tuple[str, ...]) -> Gpu:
    reader = Reader(read_document(path, "device", "yaml"))
    like = reader.text("like", "")
    peaks, sms = reader.peaks(), reader.count(("sms",))
    base = None
    if like:
        if like not in gpu_names() or like in below or like == path.stem:
            known = [each for each in gpu_names() if each != path.stem]
            reader.reject(
                ("like",), like, f"the name of another device: {one_of(known)}", nearest(like, known)
            )
        # A chain of `like` is followed; `below` catches cycles.
        base = _read(FOLDER / f"{like}.yaml", (*below, path.stem))
        # Feed and softmax are per SM, so they scale with the peak of an SM, not of the device.
        base = _scaled(base, peaks["bf16"] / sms / (base.peaks["bf16"] / base.sms), sms / base.sms)
    # With GEMM constants of its own a device is measured, whatever else it takes from another.
    derived = bool(like) and not reader.given("gemm")
    gpu = Gpu(
        name=path.stem,
        title=reader.text("title", path.stem),
        peaks=peaks,
        bandwidth=reader.bandwidth(("memory", "bandwidth")),
        capacity=reader.bytes_or(("memory", "capacity"), 0),
        sms=sms,
        tiles=reader.tiles(base.tiles if base else None),
        depth=reader.count(("depth",), base.depth if base else None),
        load=reader.count(("load",), base.load if base else Gpu.load),
        shared=reader.count(("shared",), base.shared if base else Gpu.shared, 0),
        gemm=reader.fits("gemm", GemmFit, dict(base.gemm) if base else {}),
        attention=reader.fits("attention", AttentionFit, dict(base.attention) if base else {}),
        layouts=reader.layouts(base.layouts if base else {}),
        share=reader.share(("memory", "share"), base.share if base else None),
        cache=reader.bytes_or(("memory", "cache"), base.cache if base else 0),
        launch=reader.time(("launch",), base.launch if base else None),
        power=reader.power(base.power if base else None),
        basis=reader.basis(_basis(derived, base, sms)),
        spread=reader.spread(base.spread if base else {}),
        residuals=reader.residuals(_passed_on(base, sms) if derived and base else {}),
        factors=reader.record(("training",), Factors, base.factors if base else Factors()),
        like=like,
        derived=derived,
        fitted=reader.mapping("fitted"),
    )
    reader.check_all_read()
    return gpu


def _basis(derived: bool, base: Gpu | None, sms: int) -> str:
    if not derived or not base:
        return "measured"
    return "sibling" if sms == base.sms else "derived"


def _passed_on(base: Gpu, sms: int) -> dict[str, Residuals]:
    """Return the residuals that a device takes from one it is like: other numbers of SMs are filled by other sizes."""
    return {name: each.passed_on() for name, each in base.residuals.items() if sms == base.sms}


def _scaled(gpu: Gpu, ratio: float, more: float) -> Gpu:
    """Return the constants for `more` times as many SMs, `ratio` times as fast, as fast fed, and as fast a softmax."""
    power = gpu.power
    if power:
        # The same SMs at other clocks need another voltage; another chip is taken to need as much for an operation.
        faster = portable.power(ratio, VOLTAGE) if more == 1 else ratio * more
        power = dataclasses.replace(power, demand=power.demand * faster)
    gemm = {name: dataclasses.replace(fit, feed=fit.feed * ratio) for name, fit in gpu.gemm.items()}
    attention = {
        name: dataclasses.replace(fit, score=fit.score / ratio, backward_score=fit.backward_score / ratio)
        for name, fit in gpu.attention.items()
    }
    return dataclasses.replace(gpu, gemm=gemm, attention=attention, power=power)


def load_note(options: Mapping[str, Any]) -> str:
    """Return what the power limit of a device of the package leaves of the clocks, and on what its constants rest.

    Args:
        options: Those of the compute model ``gpu``.
    """
    name = str(options.get("device"))
    if name not in gpu_names():
        return ""
    gpu = load_gpu(name)
    parts = ["data sheet only"] if gpu.basis == "sheet" else []
    if gpu.power and options.get("load") != "alone" and gpu.power.full < 1:
        parts.append(f"{100 * gpu.power.full:.0f} % of the clocks under full load")
    return f"({', '.join(parts)})" if parts else ""
