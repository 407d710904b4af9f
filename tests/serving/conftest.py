"""Loads, engines and step times to test with."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from hypothesis import strategies as st

from armillary.serving.replica import Engine
from armillary.serving.requests import Follows, Requests
from armillary.serving.step_table import StepTable


def table(budget: int = 64, sequences: int = 16, slope: int = 7) -> StepTable:
    """Return step times that grow with everything that they depend on."""
    axes = tuple(np.array(each, np.int64) for each in ((0, 8, 64), (0, 32), (0, 4, 16), (1, 64)))
    chunk, before, decoding, context = np.meshgrid(*axes, indexing="ij")
    ps = 1000 * (chunk * (chunk + 2 * before) // 3 + decoding * context * slope)
    return StepTable(1000 + 31 * np.arange(budget + 1), 11 * np.arange(sequences + 1), axes, ps)  # type: ignore[arg-type]


@st.composite
def loads(draw: st.DrawFn, most: int = 8) -> Requests:
    """Draw requests that come at once, apart, or in a closed loop, with or without shared prefixes."""
    n = draw(st.integers(1, most))
    numbers = st.lists(st.integers(1, 24), min_size=n, max_size=n)
    prompt, output = np.array(draw(numbers), np.int64), np.array(draw(numbers), np.int64)
    gaps = draw(st.lists(st.sampled_from((0, 1, 700, 5_000, 10**6)), min_size=n, max_size=n))
    arrival, clients = np.cumsum([0, *gaps[1:]]).astype(np.int64), draw(st.sampled_from((0, 0, 1, 3)))
    if clients:
        arrival = np.where(np.arange(n) < clients, 0, -1)
    unit = draw(st.sampled_from((0, 4, 7, 16)))
    names = [tuple(range(draw(st.integers(0, int(each) // unit)))) for each in prompt] if unit else None
    if names and draw(st.booleans()):
        names = [tuple(name + (at % 2) * 10 for name in own) for at, own in enumerate(names)]
    return Requests(arrival, prompt, output, clients, tuple(names) if names else None, unit)


@st.composite
def sessions(draw: st.DrawFn, most: int = 8) -> Requests:
    """Draw requests some of which follow others: one or two, at once or later, and begin like these or not."""
    own = draw(loads(most).filter(lambda each: not each.clients))
    n = len(own)
    former = [
        sorted(draw(st.sets(st.integers(0, r - 1), max_size=2))) if r and draw(st.booleans()) else []
        for r in range(n)
    ]
    follow = np.array([bool(each) for each in former])
    whole = own.prompt + own.output
    reused = [
        draw(st.integers(0, int(min(own.prompt[r], whole[each[0]])))) if each else 0
        for r, each in enumerate(former)
    ]
    delay = [draw(st.sampled_from((0, 1, 900, 20_000))) if each else 0 for each in former]
    begin = np.cumsum([0, *map(len, former)])
    flat = np.array([one for each in former for one in each], np.int64)
    shared = own.shared and tuple(() if former[r] else each for r, each in enumerate(own.shared))
    return replace(
        own, arrival=np.where(follow, -1, own.arrival), shared=shared,
        follows=Follows(begin.astype(np.int64), flat, np.array(delay, np.int64), np.array(reused, np.int64)),
    )  # fmt: skip


def apart(requests: Requests, rule: str) -> Requests:
    """Return the same as requests that come with their prompts and the token behind these."""
    again = int(rule == "vllm")
    return replace(requests, prompt=requests.prompt - again, output=requests.output + 1, shared=None)


def engines(requests: Requests, rules: tuple[str, ...] = ("vllm",)) -> st.SearchStrategy[Engine]:
    """Draw engines that can serve a load, most of them with too few blocks for all of it.

    Those of other rules than vLLM's have a front end that takes its time, and look for requests now and then.
    """
    more = len(rules) > 1
    block = st.sampled_from((1, 4, 5))
    worst = int((requests.prompt + requests.output).max())
    return block.flatmap(
        lambda size: st.builds(
            Engine,
            budget=st.sampled_from((3, 8, 64)),
            sequences=st.sampled_from((1, 3, 16)),
            block=st.just(size),
            blocks=st.integers(-(-worst // size), 2 * -(-worst // size) + 8),
            ahead=st.booleans(),
            cached=st.booleans(),
            rule=st.sampled_from(rules),
            token_ps=st.sampled_from((0, 0, 3_000_000) if more else (0,)),
            ingest_ns=st.sampled_from((0, 500) if more else (0,)),
            poll=st.sampled_from((1, 1, 3) if more else (1,)),
        )
    )
