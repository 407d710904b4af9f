"""The validations of training steps."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from armillary.evidence.validate.table import Bar, Progress, Row, Suite, Table
from armillary.evidence.validate.training import (
    bridge,
    maxtext,
    memory,
    mlperf,
    mpt,
    papers,
    simumax,
    torchtitan,
    vtrain,
)
from armillary.evidence.validate.training.case import Case
from armillary.evidence.validate.training.seen import states
from armillary.evidence.validate.training.tables import part, rows_and_halves, rows_of

Reader = Callable[[Path], Iterator[Case]]


def _from_files(
    name: str, title: str, unit: str, source: str, read: Reader, bar: Bar, notes: tuple[str, ...]
) -> Callable[[Sequence[Path], Progress], Table]:
    """Return what predicts the rows of files; rows that constants were fitted to also by fits without them."""

    def run(files: Sequence[Path], progress: Progress) -> Table:
        cases = _once(read(path) for path in files)
        aside = [case for case in cases if case.apart]
        # A file may have nothing else.
        cases = [case for case in cases if not case.apart] or cases
        found = states(cases)
        fitted = [
            state == "fitted" and case.model is not None for case, state in zip(cases, found, strict=True)
        ]
        rows, halves = rows_and_halves(cases, fitted, progress)
        rows = tuple(replace(row, seen=state) for row, state in zip(rows, found, strict=True))
        halves = tuple(replace(row, seen="fitted") for row in halves)
        seen = [case for case, with_half in zip(cases, fitted, strict=True) if with_half]
        relation = "fitted" if seen else "blind"
        table = Table(name, title, unit, source, rows, relation, bar, (*notes, *_assumed(cases)))
        parts = [
            *_by_state(table),
            *_apart(table, aside),
            *(_left_out(table, seen, halves) if seen else ()),
        ]
        return replace(table, parts=tuple(parts))

    return run


def _once(files: Iterable[Iterable[Case]]) -> list[Case]:
    """Return the cases of files, without those that an earlier file has, too."""
    found: list[Case] = []
    for cases in files:
        # Within a file equal rows are runs of one configuration.
        earlier = {(case.label, case.measured) for case in found}
        found += [case for case in cases if (case.label, case.measured) not in earlier]
    return found


def _assumed(cases: Sequence[Case]) -> Iterator[str]:
    """Yield what readers chose as rows leave it out, with the number of rows."""
    counts = Counter(each for case in cases if case.model is not None for each in case.assumed)
    yield from (f"Assumed of {count} row{'s' * (count > 1)}: {text}." for text, count in counts.most_common())


def _apart(table: Table, cases: Sequence[Case]) -> Iterator[Table]:
    """Yield the rows that are no part of the set, by why they are not."""
    for why in dict.fromkeys(case.apart for case in cases):
        rows = rows_of([case for case in cases if case.apart == why], lambda done, of: None)
        name = f"{table.name}-{why}".replace(" ", "-").lower()
        yield replace(part(name, f"Apart: {why}", table, rows), relation="blind")


def _by_state(table: Table) -> Iterator[Table]:
    """Yield the rows that no constant was fitted to apart: those of plans that have a twin, and all others."""
    names = {row.seen for row in table.rows if not row.reason}
    for state, title in (
        ("twin", "Of plans with a twin among fitted rows"),
        ("unseen", "Of plans without a twin"),
    ):
        rows = [row for row in table.rows if row.seen == state and not row.reason]
        if rows and len(names) > 1:
            bar = table.bar if state == "unseen" else None
            yield replace(part(f"{table.name}-{state}", title, table, rows), relation="blind", bar=bar)


def _left_out(table: Table, cases: Sequence[Case], rows: Sequence[Row]) -> Iterator[Table]:
    yield part(f"{table.name}-halves", "Each half by constants of the other", table, rows)
    for what in ("device", "size", "model", "GPUs", "precision"):
        values = sorted({case.facts[what] for case in cases if what in case.facts})
        # A fold per value, where there are few of them; else they would be single rows.
        for value in values if 1 < len(values) <= 12 else []:
            mine = [row for row, case in zip(rows, cases, strict=True) if case.facts.get(what) == value]
            yield part(
                f"{table.name}-{what}-{value}".replace(" ", "-"), f"Of these {what} {value}", table, mine
            )


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
            "NVIDIA-NeMo/Megatron-Bridge@067f987 (Apache-2.0)", bridge.cases, Bar(0.08, rank=0.9), bridge.NOTES,
        ),
        bridge.COLUMNS,
    ),
    Suite(
        "torchtitan", "torchtitan on A100 and H100", "torchtitan",
        _from_files(
            "torchtitan", "torchtitan on A100 and H100", "tokens/s",
            "pytorch/torchtitan@b5bcd76, docs/performance.md@217cc94 and @4b3f2e4 (BSD-3-Clause)", torchtitan.cases,
            Bar(0.08, rank=0.9), torchtitan.NOTES,
        ),
        torchtitan.COLUMNS[0], torchtitan.COLUMNS[1:],
    ),
    Suite(
        "mlperf", "MLPerf Training 5.1: Llama 3.1 8B and 405B", "mlperf/mlperf_llm_runs.csv",
        _from_files(
            "mlperf", "MLPerf Training 5.1: Llama 3.1 8B and 405B", "ms",
            "mlcommons/training_results_v5.1@441d65f, training_results_v4.0@6fe9543 (Apache-2.0)", mlperf.cases,
            Bar(0.08, rank=0.9), mlperf.NOTES,
        ),
        mlperf.COLUMNS,
    ),
    Suite(
        "maxtext", "MaxText on TPU v5p and v6e", "tpu/steps.tsv",
        _from_files(
            "maxtext", "MaxText on TPU v5p and v6e", "ms", "AI-Hypercomputer/tpu-recipes@c8cfe2f (Apache-2.0)",
            maxtext.cases, Bar(0.08, rank=0.9), maxtext.NOTES,
        ),
        maxtext.COLUMNS, (maxtext.LOG,),
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
