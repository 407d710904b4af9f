"""Collectives as fitted, against nccl-tests: unseen sizes, unseen devices, several nodes.

The rows to which the fits of the package were made are predicted by fits that have not seen them; all others by the
fits of the package, or by one derived from a data sheet for a device that was not measured.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from armillary.base.units import format_bytes
from armillary.collective.fitted import fit_names, load_fit
from armillary.collective.fitted.derive import derive
from armillary.collective.fitted.read import measured_names, plain_name, sheets
from armillary.collective.fitted.sheet import DataSheet
from armillary.evidence.calibrate import nccl, nccl_tables
from armillary.evidence.calibrate.nccl import Prediction
from armillary.evidence.calibrate.samples import Sample, merged
from armillary.evidence.validate.table import Bar, Progress, Row, Suite, Table

FROM = 64 * 2**10
"""Bytes from which on errors count: below it only the launch of a kernel is measured."""
CALIBRATED = {
    "nccl-single-node": "3d81437ee67058a7",
    "nccl-echo": "94982da4d99f93ed",
    "nccl-xxrjun": "74d307a0243532cf",
    "nccl-vtrain": "b98e717fc1b9932c",
}
"""Fingerprint of the rows to which the fits of the package were made."""
_PCIE = ("l40s", "rtx-pro-6000-server")


def fingerprint(samples: Iterable[Sample]) -> str:
    """Return a short digest of samples in any order."""
    # 6 digits: files write times with different precision; sorted, as the order of rows does not matter.
    lines = sorted(f"{sample.key} {sample.ns:.6g}" for sample in samples)
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:16]


def _against(
    name: str,
    title: str,
    source: str,
    fit_of: Callable[[Sample], str],
    bar: Bar,
    paths: Sequence[Path],
    progress: Progress,
) -> Table:
    """Predict rows: by fits without them if they are those of the package, else by the fits of the package."""
    samples = [sample for path in _tables_of(paths) for sample in nccl_tables.read_file(path)]
    # The rows that the package was fitted to: the package's own fits have seen them.
    if fingerprint(samples) == CALIBRATED[name]:

        def sheet_of(sample: Sample) -> DataSheet:
            return load_fit(fit_of(sample)).sheet

        found = nccl.held_out_sizes(samples, sheet_of, progress)
        table = _table(name, title, source, found, "held out", bar)
        fitted, _ = _shipped(samples, fit_of)
        parts = [_table("fitted", "The same rows, not held out", source, fitted, "fitted", None)]
        # None where all rows are of one node.
        if nodes := nccl.held_out_nodes(samples, sheet_of):
            parts.append(
                _table("unseen-nodes", "Numbers of nodes left out", source, nodes, "held out", Bar(0.2))
            )
        note = (
            "Each size predicted by a fit without it and a fifth of all others; the smallest and largest of a curve "
            "are not."
        )
        return replace(table, notes=(note,), parts=(*table.parts, *parts))
    # Any other file: the package's fits are blind to it, or not known to be.
    found, refused = _shipped(merged(samples), fit_of)
    progress(len(samples), len(samples))
    # A device that was measured has a fit; another one gets it from its data sheet.
    known = [each for each in found if plain_name(fit_of(each.sample)) in measured_names()]
    derived = [each for each in found if each not in known]
    if not known:
        return _table(name, title, source, derived, "blind", Bar(0.2), refused)
    table = _table(name, title, source, known, "given", bar, refused)
    if not derived:
        return table
    part = _table("unseen-device", "Devices by their data sheets", source, derived, "blind", Bar(0.2))
    return replace(table, parts=(*table.parts, part))


def _shipped(
    samples: Iterable[Sample], fit_of: Callable[[Sample], str]
) -> tuple[list[Prediction], list[Row]]:
    found: list[Prediction] = []
    refused = []
    for sample in merged(samples):
        name = plain_name(fit_of(sample))
        if name not in fit_names():
            reason = f"no fit and no data sheet of '{fit_of(sample)}'"
            refused.append(Row(_label(sample), sample.ns / 1e3, math.nan, sample.device, reason=reason))
            continue
        # One sample per call: `predictions` drops those without a regime.
        found += nccl.predictions(load_fit(name), [sample])
    return found, refused


def _unseen_device(paths: Sequence[Path], progress: Progress) -> Table:
    """Predict each device from the fit of its sibling, fitted without any row of the device."""
    samples = merged(sample for path in paths for sample in nccl_tables.read_file(path))
    devices = sorted({sample.device for sample in samples})
    names = {plain_name(device): device for device in devices}
    found: dict[str, list[Prediction]] = {}
    for done, (name, device) in enumerate(names.items(), 1):
        # Only devices whose data sheet names a sibling that was measured.
        sheet = sheets().get(name)
        if sheet is not None and sheet.sibling in names:
            # No row of the device, of any operation, is in the fit.
            sibling_rows = [sample for sample in samples if sample.device == names[sheet.sibling]]
            sibling = nccl.fit_of(sibling_rows, sheets()[sheet.sibling])
            mine = [sample for sample in samples if sample.device == device]
            found[name] = nccl.predictions(derive(name, sheet, sibling), mine)
        progress(done, len(names))
    # PCIe cards apart, see the notes.
    rest = [each for name, part in found.items() if name not in _PCIE for each in part]
    table = _table(
        "nccl-unseen-device",
        "A device by its data sheet and a sibling's fit",
        _SINGLE,
        rest,
        "held out",
        Bar(0.2),
    )
    pairs = "; ".join(f"{name} from {sheets()[name].sibling}" for name in found)
    notes = (
        f"{pairs}. Bandwidths go with the links of the data sheets, latencies with the clocks.",
        "No row of a device is in its prediction, but the rules of scaling were chosen with these tables at hand.",
        "PCIe cards apart: how many of them share a root complex of the host stands on no data sheet of a GPU.",
    )
    pcie = [each for name in _PCIE for each in found.get(name, ())]
    parts = table.parts
    if pcie:
        parts = (*parts, _table("pcie", "Cards on PCIe", _SINGLE, pcie, "held out", None))
    return replace(table, notes=notes, parts=parts)


def _table(
    name: str,
    title: str,
    source: str,
    found: Sequence[Prediction],
    relation: str,
    bar: Bar | None,
    refused: Sequence[Row] = (),
) -> Table:
    """Return a table of the large sizes, with one of the small as its part."""
    large = [each for each in found if each.sample.size >= FROM]
    small = [each for each in found if each.sample.size < FROM]
    # Below 64 KiB only launches are measured; a file without large sizes has nothing else.
    main = large if large or refused else small
    parts: tuple[Table, ...] = ()
    if large and small:
        title_small = f"Below {format_bytes(FROM)}"
        parts = (Table("small", title_small, "us", source, tuple(map(_row, small)), relation),)
    rows = (*map(_row, main), *refused)
    return Table(name, title, "us", source, rows, relation, bar, parts=parts)


def _row(each: Prediction) -> Row:
    sample = each.sample
    group = f"{sample.device} {sample.operation}" if sample.device else f"{sample.operation} {_where(sample)}"
    return Row(_label(sample), sample.ns / 1e3, each.ns / 1e3, group)


def _label(sample: Sample) -> str:
    return f"{sample.device} {sample.operation} {_where(sample)} {format_bytes(sample.size)}".strip()


def _where(sample: Sample) -> str:
    return f"{sample.per_node} GPUs" if sample.nodes == 1 else f"{sample.nodes} nodes of {sample.per_node}"


def _tables_of(paths: Sequence[Path]) -> list[Path]:
    """Leave out the files beside look-up tables that are no times of collectives."""
    # vTrain's folder also holds measured steps.
    return [path for path in paths if len(paths) == 1 or not path.name.startswith("data_ground_truth")]


_SINGLE = "nccl_single_node.csv: nccl-tests of NVIDIA (ai-dynamo/aiconfigurator@095f58a)"
_ECHO = "echo_a100_40g_allreduce.csv: Azure NDv4, 2 to 128 A100 (NetX-lab/Echo@15f0d12)"
_XXRJUN = "xxrjun_h100_nccl_sizes.csv: 10 nodes of 8 H100 (xxrjun/nccl-tests-cluster@455de4f)"
_VTRAIN = "vtrain/trace_*_LUT: all-reduce on 2 to 8 A100 and V100 (VIA-Research/vTrain)"


def _suite(
    name: str,
    title: str,
    needs: str,
    source: str,
    fit_of: Callable[[Sample], str],
    bar: Bar,
    columns: Sequence[str],
) -> Suite:
    return Suite(name, title, needs, partial(_against, name, title, source, fit_of, bar), columns)


SUITES: tuple[Suite, ...] = (
    _suite(
        "nccl-single-node",
        "Collectives in a node, unseen sizes",
        "nccl_single_node.csv",
        _SINGLE,
        # The device is in the rows themselves.
        lambda sample: sample.device,
        Bar(0.08),
        nccl_tables.SINGLE_NODE,
    ),
    Suite(
        "nccl-unseen-device",
        "A device by its data sheet and a sibling's fit",
        "nccl_single_node.csv",
        _unseen_device,
    ),
    _suite(
        "nccl-echo",
        "All-reduce on 2 to 128 A100, unseen sizes",
        "echo_a100_40g_allreduce.csv",
        _ECHO,
        lambda sample: "a100-ndv4",
        Bar(0.1),
        nccl_tables.ECHO,
    ),
    _suite(
        "nccl-xxrjun",
        "Collectives on 4 to 80 H100, unseen sizes",
        "xxrjun_h100_nccl_sizes.csv",
        _XXRJUN,
        lambda sample: "h100-sxm",
        Bar(0.1),
        nccl_tables.NODES,
    ),
    _suite(
        "nccl-vtrain",
        "All-reduce of vTrain's profiles, unseen sizes",
        "vtrain",
        _VTRAIN,
        lambda sample: "a100-vtrain" if sample.device == "a100" else sample.device,
        Bar(0.08),
        nccl_tables.LOOKUP,
    ),
)
