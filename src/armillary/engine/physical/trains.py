"""When the chunks of trains went whose rate never changed: see `train_kernel`."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from armillary.engine.physical import layout as lk
from armillary.trace.distinct import distinct_columns

Ints = NDArray[np.int64]


def fill_spans(
    tables: Mapping[str, Ints], train: Ints, plan: Ints, item: Ints, chunk: Ints, spans: tuple[Ints, Ints]
) -> None:
    """Fill in start and end of the chunks of whole trains.

    Args:
        tables: Of the program.
        train: Start and rate of the train of every item, (2, items); rate 0: it has none.
        plan: Plan of every item.
        item: Of each row.
        chunk: Of each row.
        spans: Start and end of each row.
    """
    begun, rate = train
    whole = np.flatnonzero(rate)
    if not whole.size:
        return
    plans, phases = tables["PLANS"].reshape(-1, lk.PL_COLUMNS), tables["PHASES"].reshape(-1, lk.PH_COLUMNS)
    kinds, kind = distinct_columns(np.stack([plan[whole], rate[whole]]))
    begins, ends, first = [], [], [0]
    after = [*plans[1:, lk.PL_CHUNKS].tolist(), len(tables["CHUNKS"])]
    for example in whole[kinds].tolist():
        number = int(plan[example])
        rows = phases[tables["CHUNKS"][int(plans[number, lk.PL_CHUNKS]) : after[number]]]
        each = -(-rows[:, lk.PH_VOLUME] // rate[example])
        through = np.cumsum(each)
        begins.append(through - each)
        ends.append(through + rows[:, lk.PH_LATENCY])
        first.append(first[-1] + len(rows))
    base = np.zeros(len(rate), np.int64)
    base[whole] = np.array(first)[kind]
    which = slice(None) if len(whole) == len(rate) else np.flatnonzero(rate[item])
    of, at = item[which], base[item[which]] + chunk[which]
    spans[0][which] = begun[of] + np.concatenate(begins)[at]
    spans[1][which] = begun[of] + np.concatenate(ends)[at]
