"""The validations of training steps."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from armillary.evidence.calibrate.training import half
from armillary.evidence.validate.table import Bar, Progress, Suite, Table
from armillary.evidence.validate.training import bridge, memory, mpt, papers, simumax, vtrain
from armillary.evidence.validate.training.case import Case
from armillary.evidence.validate.training.machines import MACHINES
from armillary.evidence.validate.training.stacks import sources_of
from armillary.evidence.validate.training.tables import fold, part, rows_of

Reader = Callable[[Path], Iterator[Case]]


def _from_files(
    name: str, title: str, unit: str, source: str, read: Reader, bar: Bar, notes: tuple[str, ...]
) -> Callable[[Sequence[Path], Progress], Table]:
    """Return what predicts the rows of files; rows that constants were fitted to also by fits without them."""

    def run(files: Sequence[Path], progress: Progress) -> Table:
        cases = [case for path in files for case in read(path)]
        # Hashes of the files that constants were fitted to: rows of those are not held out.
        known = {digest for stack in {case.stack for case in cases} for digest in sources_of(stack)}
        seen = any(hashlib.sha256(path.read_bytes()).hexdigest() in known for path in files)
        table = Table(
            name, title, unit, source, rows_of(cases, progress), "fitted" if seen else "given", bar, notes
        )
        return replace(table, parts=tuple(_left_out(table, cases, progress))) if seen else table

    return run


def _left_out(table: Table, cases: Sequence[Case], progress: Progress) -> Iterator[Table]:
    cases = [case for case in cases if case.model is not None]
    # Halves by a hash of the label, as the fit made them.
    rows = rows_of(cases, progress, lambda case: fold(case, f"half {half(case.label)}"))
    yield part(f"{table.name}-halves", "Each half by constants of the other", table, rows)
    for what in ("device", "size", "model", "GPUs", "precision"):
        values = sorted({case.facts[what] for case in cases if what in case.facts})
        # A fold per value, where there are few of them; else they would be single rows.
        for value in values if 1 < len(values) <= 12 else []:
            mine = [row for row, case in zip(rows, cases, strict=True) if case.facts.get(what) == value]
            yield part(
                f"{table.name}-{what}-{value}".replace(" ", "-"), f"Of these {what} {value}", table, mine
            )
    # Rows on more than one node, by constants of single nodes.
    large = [case for case in cases if case.npus > MACHINES[case.machine].domain]
    if large and len(large) < len(cases):
        rows = rows_of(large, progress, lambda case: fold(case, "multi-node"))
        title = "More than one node, by constants of single nodes"
        yield part(f"{table.name}-multi-node", title, table, rows)


SIMUMAX = "simumax/b200_release_part.json"
SIMUMAX_SOURCE = "MooreThreads/SimuMax v1.2, summary of the B200 release"
VTRAIN = "VIA-Research/vTrain (MIT), arXiv 2312.12391"
SUITES: tuple[Suite, ...] = (
    Suite("megatron-table-1", papers.TITLES["megatron-table-1"], "", papers.megatron_table_1),
    Suite("megatron-table-2", papers.TITLES["megatron-table-2"], "", papers.megatron_table_2),
    Suite("selective-table-5", papers.TITLES["selective-table-5"], "", papers.selective_table_5),
    Suite("selective-table-4", papers.TITLES["selective-table-4"], "", papers.selective_table_4),
    Suite("llama-3-table-4", papers.TITLES["llama-3-table-4"], "", papers.llama_3_table_4),
    Suite(
        "vtrain-single", "GPT on one node of A100", "vtrain/data_ground_truth_single.csv",
        _from_files(
            "vtrain-single", "GPT on one node of A100 (vTrain)", "ms", VTRAIN, vtrain.cases, Bar(0.08), vtrain.NOTES
        ),
        vtrain.COLUMNS,
    ),
    Suite(
        "vtrain-multi", "GPT on many nodes of A100", "vtrain/data_ground_truth_multi.csv",
        _from_files(
            "vtrain-multi", "GPT on many nodes of A100 (vTrain)", "ms", VTRAIN, vtrain.cases, Bar(0.1), vtrain.NOTES
        ),
        (*vtrain.MULTI, *vtrain.COLUMNS),
    ),
    Suite(
        "mpt", "MPT with FSDP on A100 and H100", "mosaicml_mpt_throughput.csv",
        _from_files(
            "mpt", "MPT with FSDP on A100 and H100", "tokens/s", "mosaicml/llm-foundry@8c8dd48 (Apache-2.0)",
            mpt.cases, Bar(0.08, rank=0.9), mpt.NOTES,
        ),
        mpt.COLUMNS,
    ),
    Suite(
        "megatron-bridge", "Megatron-Bridge on five generations", "nvidia_megatron_bridge_perf.csv",
        _from_files(
            "megatron-bridge", "Megatron-Bridge on five generations", "tokens/s",
            "NVIDIA-NeMo/Megatron-Bridge@067f987 (Apache-2.0)", bridge.cases, Bar(0.12, rank=0.9), bridge.NOTES,
        ),
        bridge.COLUMNS,
    ),
    Suite(
        "simumax", "Megatron-core on a B200 node", SIMUMAX,
        _from_files(
            "simumax", "Megatron-core on a B200 node (SimuMax)", "ms", SIMUMAX_SOURCE, simumax.cases, Bar(0.06),
            simumax.NOTES,
        ),
        simumax.COLUMNS,
    ),
    Suite(
        "simumax-memory", "Memory allocated by Megatron-core on a B200 node", SIMUMAX,
        memory.from_files(
            "simumax-memory", "Most memory allocated by a rank of Megatron-core on a B200 node", SIMUMAX_SOURCE,
            partial(simumax.peaks, what="allocated"), lambda found: found.peak, Bar(0.01, 0.03), simumax.NOTES,
        ),
        simumax.COLUMNS,
    ),
    Suite(
        "simumax-reserved", "Memory reserved by Megatron-core on a B200 node", SIMUMAX,
        memory.from_files(
            "simumax-reserved", "Most memory reserved by a rank of Megatron-core on a B200 node", SIMUMAX_SOURCE,
            partial(simumax.peaks, what="reserved"), lambda found: found.reserved, None, simumax.NOTES,
        ),
        simumax.COLUMNS,
    ),
)  # fmt: skip
