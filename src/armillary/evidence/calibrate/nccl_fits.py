"""Regenerate the fits of the package: ``python -m armillary.evidence.calibrate.nccl_fits MEASURED FOLDER``."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from armillary.base.files import write_text
from armillary.collective.fitted.derive import derive, networked
from armillary.collective.fitted.model import SMALL
from armillary.collective.fitted.read import load_fit, plain_name, sheets
from armillary.collective.fitted.sheet import DataSheet
from armillary.collective.fitted.tuning import GENERATIONS, NVLS, NVLS_FROM, PCIE
from armillary.collective.fitted.write import text_of
from armillary.evidence.calibrate import nccl
from armillary.evidence.calibrate.nccl_tables import read_file
from armillary.evidence.calibrate.priors import deviation_of
from armillary.evidence.calibrate.samples import Sample, merged

_SINGLE = "nccl-tests on one node, NCCL 2.27.3 and 2.29.2 (ai-dynamo/aiconfigurator@095f58a, Apache-2.0)"
_ECHO = "nccl-tests on Azure NDv4 (NetX-lab/Echo@15f0d12, MIT)"
_NODES = "nccl-tests on 10 nodes of 8 H100, NCCL 2.29.2 (xxrjun/nccl-tests-cluster@455de4f, Apache-2.0)"
_LOOKUP = "all-reduce of vTrain's profiles (VIA-Research/vTrain, MIT)"
_VTRAIN_NIC = 12.5
"""GB/s of a GPU: 800 Gb/s of a node in all (VIA-Research/vTrain, src/config.py)."""


def fit_texts(measured: Path) -> Iterator[tuple[str, str]]:
    """Yield (name, text of its file) of each fit of the package, from the folder of measurements."""
    single = read_file(measured / "nccl_single_node.csv")
    echo = read_file(measured / "echo_a100_40g_allreduce.csv")
    nodes = read_file(measured / "xxrjun_h100_nccl_sizes.csv")
    # Over several nodes there are two sources: Echo (A100, from small sizes) and xxrjun (H100, from 32 MiB).
    more: dict[str, tuple[list[Sample], str]] = {
        "a100-sxm": ([sample for sample in echo if sample.nodes > 1], _ECHO),
        # Rows of one node are of H100, too, which the file does not say.
        "h100-sxm": (nodes, _NODES),
    }
    for device in sorted({sample.device for sample in single}):
        name = plain_name(device)
        others, source = more.get(name, ([], ""))
        samples = [sample for sample in single if sample.device == device] + others
        yield _file(name, name, f"{device} as measured", samples, (_SINGLE, *filter(None, [source])))
    yield _file("a100-ndv4", "a100-sxm-40", "Azure NDv4, 200 Gb/s for each GPU", echo, (_ECHO,))
    for device, name in (("a100", "a100-vtrain"), ("v100", "v100-sxm")):
        files = sorted((measured / "vtrain").glob(f"trace_{device}_*_LUT"))
        samples = [sample for path in files for sample in read_file(path)]
        # Its adapters are slower than those of the data sheet.
        nic = _VTRAIN_NIC if device == "a100" else None
        yield _file(name, f"{device}-sxm", f"{device} of vTrain, all-reduce only", samples, (_LOOKUP,), nic)


def unseen_text(measured: Path) -> str:
    """Return the file of standard deviations where an operation, a place or a device is left out of the fits."""
    rows: dict[str, list[Sample]] = {}
    for sample in merged(read_file(measured / "nccl_single_node.csv")):
        rows.setdefault(plain_name(sample.device), []).append(sample)
    rows = {name: given for name, given in rows.items() if sheets()[name].link >= PCIE}
    fits = {name: nccl.fit_of(given, sheets()[name]) for name, given in rows.items()}
    found: dict[str, list[nccl.Prediction]] = {
        "fit": [],
        "operation": [],
        "place": [],
        "alike": [],
        "other": [],
    }
    for name, given in rows.items():

        def sheet_of(sample: Sample, name: str = name) -> DataSheet:
            return sheets()[name]

        found["fit"] += nccl.held_out_sizes(given, sheet_of)
        found["operation"] += nccl.held_out(given, sheet_of, lambda sample: sample.operation)
        for other, fit in fits.items():
            if other != name:
                ours, theirs = sheets()[name], sheets()[other]
                years = [GENERATIONS.index(sheet.generation) for sheet in (ours, theirs)]
                alike = years[0] == years[1] and ours.link == theirs.link
                # A neighbour in time: nobody derives Blackwell from Ampere.
                if alike or abs(years[0] - years[1]) == 1:
                    found["alike" if alike else "other"] += nccl.predictions(derive(name, ours, fit), given)
    # The network of one cluster predicted by that of the other.
    clusters = {
        "a100-sxm-40": merged(read_file(measured / "echo_a100_40g_allreduce.csv")),
        "h100-sxm": merged(read_file(measured / "xxrjun_h100_nccl_sizes.csv")),
    }
    for name, given in clusters.items():
        (other,) = (each for each in clusters if each != name)
        here = nccl.fit_of(nccl.warm(given), sheets()[name])
        there = nccl.fit_of(nccl.warm(clusters[other]), sheets()[other])
        assert here.mechanism is not None and there.mechanism is not None
        network = networked(there.mechanism, sheets()[name], sheets()[other])
        mixed = replace(here, mechanism=replace(here.mechanism, network=network))
        found["place"] += nccl.predictions(mixed, [sample for sample in nccl.warm(given) if sample.nodes > 1])
    lines = [
        "# Standard deviations of ln(measured / predicted) of what was left out of fits, from 64 KiB on: sizes, an",
        "# operation, the network, a device of the same generation of links, one of the next or the last.",
    ]
    for what, rest in found.items():
        offs = [each.off for each in rest if each.sample.size >= SMALL]
        lines.append(f"{what}: {deviation_of(offs):.3f}")
    return "\n".join(lines) + "\n"


def _file(
    name: str,
    device: str,
    title: str,
    samples: Sequence[Sample],
    sources: tuple[str, ...],
    nic: float | None = None,
) -> tuple[str, str]:
    """Return the name and text of a fit, whose network has other NICs than the data sheet says if `nic` is given."""
    sheet = sheets()[device]
    if nic:
        # A copy of the data sheet, which says why it differs.
        sheet = sheet.model_copy(update={"nic": nic, "source": f"{sheet.source}; NICs of {title}"})
    fit = nccl.fit_cluster(name, sheet, samples, sources)
    if sheet.reduces and max(sample.per_node for sample in samples) < NVLS_FROM:
        # The switch was not measured: too few members. It is that of the sibling.
        known = load_fit(sheet.sibling).mechanism
        assert known is not None and fit.mechanism is not None
        line = known.lines[NVLS]
        fit = replace(fit, mechanism=replace(fit.mechanism, lines={**fit.mechanism.lines, NVLS: line}))
    return name, text_of(fit, title, None if nic else device)


if __name__ == "__main__":
    for name, text in fit_texts(Path(sys.argv[1])):
        write_text(Path(sys.argv[2]) / f"{name}.yaml", text)
    write_text(Path(sys.argv[2]).parent / "unseen.yaml", unseen_text(Path(sys.argv[1])))
