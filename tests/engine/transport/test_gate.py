"""Messages that wait for a route: the most urgent is next, of equal ones the first that came."""

from __future__ import annotations

from bisect import insort

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from armillary.base.jit import load
from armillary.engine.transport import layout as lk

KEY = 2


def gate(messages: int) -> tuple[list[int], list[int]]:
    net = [0] * (lk.NET_HEAD + lk.GA_COLUMNS)
    net[lk.N_GATES] = lk.NET_HEAD
    return net, [0] * ((messages + 1) * lk.P_COLUMNS)


@settings(deadline=None, max_examples=300)
@given(st.lists(st.integers(-4, 4) | st.none(), max_size=120))
def test_they_leave_in_order(steps: list[int | None]) -> None:
    kernel = load("armillary.engine.transport.gate_kernel", "interpreted")
    net, pool = gate(len(steps))
    waiting: list[tuple[int, int]] = []
    busy = False
    for number, key in enumerate(steps, start=1):
        if key is None:
            if not busy:
                continue
            expected = waiting.pop(0)[1] if waiting else 0
            busy = expected > 0
            assert kernel.left(net, pool, 0, KEY) == expected * lk.P_COLUMNS
            continue
        pool[number * lk.P_COLUMNS + KEY] = key
        assert kernel.admit(net, pool, 0, number * lk.P_COLUMNS, key, KEY) == (not busy)
        if busy:
            insort(waiting, (key, number))
        busy = True


@pytest.mark.parametrize("urgent", [lambda i: -i, lambda i: i % 3, lambda i: (i * 7919) % 2001 - 1000])
def test_very_many_wait(urgent) -> None:  # type: ignore[no-untyped-def]
    count = 20_000
    kernel = load("armillary.engine.transport.gate_kernel", "interpreted")
    net, pool = gate(count)
    keys = [urgent(i) for i in range(count)]
    for i, key in enumerate(keys):
        pool[(i + 1) * lk.P_COLUMNS + KEY] = key
        kernel.admit(net, pool, 0, (i + 1) * lk.P_COLUMNS, key, KEY)
    left = [kernel.left(net, pool, 0, KEY) // lk.P_COLUMNS - 1 for _ in range(count - 1)]
    assert left == sorted(range(1, count), key=lambda i: (keys[i], i))
