"""A machine whose constants are known, and the files that somebody who measured it would have."""

from __future__ import annotations

import dataclasses
import itertools
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import yaml

from armillary.collective.fitted import CollectiveFit, load_fit
from armillary.collective.fitted.tuning import NVLS, SIMPLE
from armillary.collective.fitted.write import text_of
from armillary.compute.gpu.device import Gpu, load_gpu
from armillary.compute.machine import machine_of
from armillary.evidence.calibrate.device_file import like_keys
from armillary.evidence.calibrate.gemm import predicted_ns
from armillary.explore.training.defaults import completed
from armillary.explore.training.mean_step import seconds
from armillary.explore.training.software import software_of
from armillary.explore.training.step import Step
from armillary.workload.models import read_model

NOISE = 0.05
"""Standard deviation of the logarithm of every measured time."""
PROGRAMS = {
    "all-reduce": "all_reduce_perf",
    "all-gather": "all_gather_perf",
    "reduce-scatter": "reduce_scatter_perf",
}
HEAD = "#       size         count      type   redop    root     time   algbw   busbw  #wrong"
CONSTANTS = {"gemm": 1.2, "step": 6.0}
"""What steps take besides, over the constants of torchtitan."""
MODEL = """kind: decoder
name: small
layers: 3
hidden: 2048
vocabulary: 32000
context: 2048
tied: false
norm: rms
activation: swiglu
attention: {heads: 16}
mlp: {size: 5632}
"""


@dataclass(frozen=True)
class Truth:
    """An H100 whose GEMMs, links and launches are not those of the package."""

    gpu: Gpu
    fit: CollectiveFit

    def gemms(self, shapes: np.ndarray, seed: int) -> np.ndarray:
        """Return measured ns of shapes."""
        return predicted_ns(self.gpu, "bf16", shapes) * noise(len(shapes), seed)

    def collectives(self, operation: str, sizes: list[int], seed: int, members: int = 8) -> list[float]:
        """Return measured ns of a collective of a node."""
        times = [self.fit.time(operation, members, 1, size).total_ns for size in sizes]
        return (np.array(times) * noise(len(times), seed)).tolist()


def noise(count: int, seed: int) -> np.ndarray:
    return np.exp(NOISE * np.random.default_rng(seed).standard_normal(count))


def truth() -> Truth:
    gpu, fit = load_gpu("h100-sxm"), load_fit("h100-sxm")
    own = gpu.gemm["bf16"]
    gemm = dataclasses.replace(own, rate=0.9 * own.rate, launch=1.8 * own.launch, memory=0.9 * own.memory)
    assert fit.mechanism is not None
    lines = {
        name: line._replace(
            bandwidth=line.bandwidth * (0.75 if name in (SIMPLE, NVLS) else 1), overhead=line.overhead * 1.4
        )
        for name, line in fit.mechanism.lines.items()
    }
    return Truth(
        dataclasses.replace(gpu, gemm={**gpu.gemm, "bf16": gemm}),
        dataclasses.replace(fit, mechanism=dataclasses.replace(fit.mechanism, lines=lines)),
    )


def shapes(sides: tuple[int, ...] = (256, 1024, 3072, 8192)) -> np.ndarray:
    return np.array(list(itertools.product(sides, sides, sides)))


def sizes(first: int = 12, last: int = 31) -> list[int]:
    return [2**n for n in range(first, last)]


def write_gemms(path: Path, known: Truth, seed: int = 1) -> None:
    table = shapes()
    times = known.gemms(table, seed)
    rows = [f"{m},{n},{k},{ns / 1e3:.4f}" for (m, n, k), ns in zip(table.tolist(), times, strict=True)]
    path.write_text("\n".join(["m,n,k,time", *rows, ""]))


def write_log(path: Path, known: Truth, operation: str, seed: int = 2, members: int = 8) -> None:
    """Write what nccl-tests prints."""
    ranks = [
        f"#  Rank  {n} Group  0 Pid  {9100 + n} on    node-a device  {n} [0000:1b:00] NVIDIA H100 80GB HBM3"
        for n in range(members)
    ]
    rows = [
        f"{size:12d} {size // 4:12d}     float     sum      -1 {ns / 1e3:10.3f}  0.00  0.00  0"
        for size, ns in zip(sizes(), known.collectives(operation, sizes(), seed, members), strict=True)
    ]
    lines = [
        f"# Collective test starting: {PROGRAMS[operation]}",
        "# nThread 1 nGpus 1 minBytes 4096",
        *ranks,
        HEAD,
    ]
    path.write_text("\n".join([*lines, *rows, ""]))


def write_profile(path: Path, known: Truth, seed: int = 3) -> None:
    """Write what Kineto records of a rank: operators with shapes, and the kernels that they launch."""
    table = shapes((1024, 2048, 4096))
    times = predicted_ns(known.gpu, "bf16", table, loaded=np.ones(len(table), bool)) * noise(len(table), seed)
    events: list[Mapping[str, object]] = []
    clock = 0.0
    for at, ((m, n, k), ns) in enumerate(zip(table.tolist(), times.tolist(), strict=True), 1):
        said = {"External id": at, "Input Dims": [[m, k], [k, n]], "Input type": ["c10::BFloat16"] * 2}
        events.append(event("cpu_op", "aten::mm", clock, 5.0, said))
        events.append(
            event("kernel", "sm90_gemm", clock, ns / 1e3, {"External id": at, "device": 0, "stream": 7})
        )
        clock += ns / 1e3
    gathered = zip(sizes(20, 30), known.collectives("all-gather", sizes(20, 30), 9), strict=True)
    for number, (size, ns) in enumerate(gathered):
        # The second call of each waits for another rank.
        for waited in (1.0, 3.0):
            said = {
                "Collective name": "_allgather_base", "In msg nelems": size // 16, "Out msg nelems": size // 2,
                "Group size": 8, "dtype": "BFloat16", "Process Group Ranks": str(list(range(8))),
                "External id": 1000 + number, "device": 0, "stream": 20,
            }  # fmt: skip
            name = "ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
            events.append(event("kernel", name, clock, waited * ns / 1e3, said))
            clock += waited * ns / 1e3
    device = {"id": 0, "name": "NVIDIA H100 80GB HBM3", "numSms": 132}
    path.write_text(json.dumps({"deviceProperties": [device], "traceEvents": events}))


def event(
    category: str, name: str, start: float, length: float, said: Mapping[str, object]
) -> dict[str, object]:
    return {
        "ph": "X",
        "cat": category,
        "name": name,
        "pid": 1,
        "tid": 1,
        "ts": start,
        "dur": length,
        "args": said,
    }


def plans() -> list[dict[str, object]]:
    """Return plans of `MODEL` on 8 ranks, in an order without meaning."""
    found: list[dict[str, object]] = [
        {"batch": batch, "microbatch": micro, "sequence": length, "parallel": {"tp": tp}}
        for batch, micro, tp, length in itertools.product((8, 16, 32, 48), (1, 2), (1, 2, 4), (1024, 2048))
        if batch % (micro * 8 // tp) == 0
    ]
    order = np.random.default_rng(11).permutation(len(found))
    return [found[at] for at in order]


def step_seconds(
    known: Truth, folder: Path, own: list[dict[str, object]], seed: int, repeats: int = 3
) -> np.ndarray:
    """Return (plans, repeats) measured s of a step."""
    gemm = yaml.safe_dump(like_keys(known.gpu, "truth", "h100-sxm", {"bf16": known.gpu.gemm["bf16"]}))
    (folder / "truth.device.yaml").write_text(gemm)
    (folder / "truth.collectives.yaml").write_text(text_of(known.fit, "truth", "h100-sxm"))
    device, fit = (str(folder / f"truth.{what}.yaml") for what in ("device", "collectives"))
    base = machine_of("8xh100")
    keys = {**base.keys, "compute": {"model": "gpu", "device": device}, "collectives": {"fit": fit}}
    software = software_of("torchtitan", device)
    model = read_model(yaml.safe_load(MODEL))
    times = [
        seconds(
            Step(model, completed(plan, software.plan), keys, 8, device),
            software.fitted.constants.changed(CONSTANTS),
        )
        for plan in own
    ]
    return np.array(times)[:, None] * noise(len(own) * repeats, seed).reshape(-1, repeats)


def write_steps(path: Path, known: Truth, own: list[dict[str, object]], seed: int = 4) -> None:
    (path.parent / "model.yaml").write_text(MODEL)
    measured = step_seconds(known, path.parent, own, seed)
    steps = [
        {"plan": plan, "seconds": [round(each, 7) for each in row]}
        for plan, row in zip(own, measured.tolist(), strict=True)
    ]
    path.write_text(
        yaml.safe_dump({"model": "model.yaml", "software": "torchtitan", "ranks": 8, "steps": steps})
    )
