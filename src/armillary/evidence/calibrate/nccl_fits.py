"""Regenerate the fits of the package: ``python -m armillary.evidence.calibrate.nccl_fits MEASURED FOLDER``."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from armillary.base.files import write_text
from armillary.collective.fitted.between import Spanning, Stage
from armillary.collective.fitted.model import CollectiveFit
from armillary.collective.fitted.read import plain_name, sheets
from armillary.collective.fitted.write import text_of
from armillary.evidence.calibrate import nccl
from armillary.evidence.calibrate.nccl_tables import read_file

_SINGLE = "nccl-tests on one node, NCCL 2.27.3 and 2.29.2 (ai-dynamo/aiconfigurator@095f58a, Apache-2.0)"
_ECHO = "nccl-tests on Azure NDv4 (NetX-lab/Echo@15f0d12, MIT)"
_NODES = "nccl-tests on 10 nodes of 8 H100, NCCL 2.29.2 (xxrjun/nccl-tests-cluster@455de4f, Apache-2.0)"
_LOOKUP = "all-reduce of vTrain's profiles (VIA-Research/vTrain, MIT)"
_VTRAIN_NIC = 12.5
"""GB/s of a GPU: 800 Gb/s of a node in all (VIA-Research/vTrain, src/config.py)."""

_SMALL = 4.0 * 2**20
"""Bytes up to which a low-latency protocol is assumed where nothing was measured."""
_RING_LL = (6600.0, 0.0, 1300.0)
"""ns: base, hop and step of a ring of 8 GPUs a node, as NCCL's tuning table has it (src/graph/tuning.cc, 2.28): 6.6 us,
7 steps of 0.6 x 1.8 us on NVLink to one of 2.7 us on the network."""


def fit_texts(measured: Path) -> Iterator[tuple[str, str]]:
    """Yield (name, text of its file) of each fit of the package, from the folder of measurements."""
    single = read_file(measured / "nccl_single_node.csv")
    echo = read_file(measured / "echo_a100_40g_allreduce.csv")
    nodes = read_file(measured / "xxrjun_h100_nccl_sizes.csv")
    # Over several nodes there are two sources: Echo (A100, from small sizes) and xxrjun (H100, from 32 MiB).
    over_echo = nccl.fit_between(echo)
    over_nodes = {
        operation: _with_small(operation, spanning, over_echo["all-reduce"])
        for operation, spanning in nccl.fit_between(nodes).items()
    }
    spanning: dict[str, tuple[dict[str, Spanning], tuple[str, ...]]] = {
        "a100-sxm": (over_echo, (_ECHO,)),
        "h100-sxm": (over_nodes, (_NODES,)),
    }
    # Rows of one node in the second source are H100, too, which the file does not say.
    pooled = nccl.fit_inside([*single, *(replace(sample, device="h100_sxm") for sample in nodes)])
    for device, inside in pooled.items():
        name = plain_name(device)
        between, sources = spanning.get(name, ({}, ()))
        yield _file(name, name, f"{device} as measured", inside, between, (_SINGLE, *sources))
    inside = nccl.fit_inside(echo)[""]
    yield _file("a100-ndv4", "a100-sxm-40", "Azure NDv4, 200 Gb/s for each GPU", inside, over_echo, (_ECHO,))
    for device, name in (("a100", "a100-vtrain"), ("v100", "v100-sxm")):
        files = sorted((measured / "vtrain").glob(f"trace_{device}_*_LUT"))
        inside = nccl.fit_inside([sample for path in files for sample in read_file(path)])[device]
        # Its adapters are slower than those of the data sheet.
        nic = _VTRAIN_NIC if device == "a100" else None
        yield _file(
            name, f"{device}-sxm", f"{device} of vTrain, all-reduce only", inside, {}, (_LOOKUP,), nic
        )


def _with_small(operation: str, spanning: Spanning, small: Spanning) -> Spanning:
    """Put regimes below `_SMALL` before those of measurements that begin at 32 MiB.

    Of an all-reduce those of `small`, measured on another cluster; else the latency of a ring with the protocol LL.
    """
    # Messages between nodes need no ring.
    if operation == "send":
        return spanning
    # The last value is the load of the NICs: LL sends a flag of 4 bytes with each 4 bytes of data, so that
    # rings carry twice the bytes.
    ring = (Stage(math.inf, *_RING_LL, 2.0 if operation != "all-to-all" else 1.0),)
    before = small.stages if operation == "all-reduce" else ring
    # Regimes of small sizes end where those of the measurements begin.
    clipped = [replace(stage, up_to=min(stage.up_to, _SMALL)) for stage in before]
    kept = [stage for n, stage in enumerate(clipped) if n == 0 or clipped[n - 1].up_to < _SMALL]
    return replace(spanning, stages=(*kept, *spanning.stages))


def _file(
    name: str,
    device: str,
    title: str,
    inside: nccl.Curves,
    between: dict[str, Spanning],
    sources: tuple[str, ...],
    nic: float | None = None,
) -> tuple[str, str]:
    """Return the name and text of a fit, whose network has other NICs than the data sheet says if `nic` is given."""
    sheet = sheets()[device]
    if nic:
        # A copy of the data sheet, which says why it differs.
        sheet = sheet.model_copy(update={"nic": nic, "source": f"{sheet.source}; NICs of {title}"})
    fit = CollectiveFit(name, sheet, inside, between, sources)
    return name, text_of(fit, title, None if nic else device)


if __name__ == "__main__":
    for name, text in fit_texts(Path(sys.argv[1])):
        write_text(Path(sys.argv[2]) / f"{name}.yaml", text)
