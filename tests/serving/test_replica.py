"""The loop: equal to a plain reference step by step, and true to what every engine keeps."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from armillary.base.errors import InputError
from armillary.base.jit import load
from armillary.serving import columns as c
from armillary.serving.drafts import chances
from armillary.serving.outcome import joined
from armillary.serving.replica import Engine, Served, serve_replica
from armillary.serving.requests import Requests

from .conftest import apart, engines, loads, sessions, table
from .reference import Reference
from .reference_parts import Step
from .reference_rules import RULES, Together

TABLE = table()


TOGETHER = replace(TABLE, together=13 * np.arange(65))


def price(step: Step, request: object, each: int = 0) -> int:
    """Return ns of a step by the kernel's own table, where ranks have `each` tokens on average."""
    kernel = load("armillary.serving.price_kernel", "interpreted")
    decoding = [before for r, before, new in step.parts if new == 1 and before >= request(r).prompt]  # type: ignore[operator]
    prompts = [each for each in step.parts if not (each[2] == 1 and each[1] >= request(each[0]).prompt)]  # type: ignore[operator]
    new = sum(each[2] for each in prompts)
    scores = sum(each * (2 * before + each) for _, before, each in prompts)
    before = (scores - new * new) // (2 * new) if new else 0
    drafts = step.drafts
    return int(
        kernel.step_ns(
            TOGETHER.arrays(), new + len(decoding) + drafts, len(step.makes) + drafts, new, before, len(decoding),
            sum(decoding) // len(decoding) if decoding else 0, each,
        )
    )  # fmt: skip


def served(requests: Requests, engine: Engine) -> Served:
    return serve_replica(requests, engine, TABLE, "interpreted")


@pytest.mark.parametrize("rule", c.RULES)
@settings(max_examples=60)
@given(st.data())
def test_it_is_the_reference_step_by_step(rule: str, data: st.DataObject) -> None:
    requests = data.draw(loads() | sessions())
    engine = data.draw(engines(requests, (rule,)))
    slow, fast = RULES[rule](requests, engine, price), served(requests, engine)
    slow.run()
    columns = (c.L_START, c.L_END, c.L_TOKENS, c.L_RUNNING, c.L_WAITING, c.L_BLOCKS)
    steps = [
        (s.start, s.end, sum(each[2] for each in s.parts), s.running, s.waiting, s.used) for s in slow.steps
    ]
    assert fast.steps[:, columns].tolist() == [list(each) for each in steps]

    def of(name: str) -> list[int]:
        return [getattr(each, name) for each in slow.requests]

    for name in ("begun", "first", "last", "preempted", "hit", "again", "stalled"):
        assert getattr(fast, name).tolist() == of(name), name
    assert fast.requests.arrival.tolist() == of("arrival")


@pytest.mark.parametrize("rule", c.RULES)
@settings(max_examples=150)
@given(st.data())
def test_what_tiers_keep_is_that_of_the_reference(rule: str, data: st.DataObject) -> None:
    requests = data.draw((loads(12) | sessions(12)).filter(lambda each: each.alike))
    engine = data.draw(engines(requests, (rule,)))
    # Few blocks, so that most are taken before they are found.
    least = -(-int((requests.prompt + requests.output).max()) // engine.block)
    engine = replace(
        engine, cached=True, blocks=least + data.draw(st.integers(0, 3)), sequences=data.draw(st.sampled_from((1, 3))),
        slots=(data.draw(st.sampled_from((0, 1, 3, 8, 100))), data.draw(st.sampled_from((0, 0, 2, 5, 100)))),
        load_ps=(data.draw(st.sampled_from((0, 1, 700_000))), data.draw(st.sampled_from((0, 3, 900_000)))),
    )  # fmt: skip

    def slower(step: Step, request: object) -> int:
        ps = sum(many * each for many, each in zip(step.loads, engine.load_ps, strict=True))
        return price(step, request) + -(-ps // 1000)

    slow, fast = RULES[rule](requests, engine, slower), served(requests, engine)
    slow.run()
    assert fast.steps[:, [c.L_START, c.L_END]].tolist() == [[each.start, each.end] for each in slow.steps]
    for name in ("begun", "first", "last", "preempted", "hit", "again", "loaded", "stalled"):
        assert getattr(fast, name).tolist() == [getattr(each, name) for each in slow.requests], name
    assert (fast.loaded <= fast.hit).all()
    waits = joined(requests, [fast], [np.arange(len(requests))]).waits
    assert all((each >= 0).all() for each in waits.values())
    assert (sum(waits.values()) == fast.last - fast.requests.arrival).all()


@pytest.mark.parametrize("rule", c.RULES)
def test_what_comes_from_the_host_takes_a_transfer_and_no_computing(rule: str) -> None:
    # The second takes all blocks of the device, so the third finds the first's with the host alone.
    requests = Requests(
        np.array([0, 10**5, 2 * 10**5]), np.array([33, 47, 33]), np.array([1, 1, 1]), 0, ((0,), (), (0,)), 32
    )
    engine = Engine(64, 16, 4, 12, ahead=False, rule=rule)
    without, there, disk, both = (
        served(requests, replace(engine, slots=each, load_ps=(50_000, 200_000)))
        for each in ((0, 0), (8, 0), (0, 8), (3, 8))
    )
    assert without.hit.tolist() == [0, 0, 0] and there.loaded.tolist() == there.hit.tolist() == [0, 0, 32]
    assert disk.loaded.tolist() == both.loaded.tolist() == there.loaded.tolist()
    assert disk.last[2] - there.last[2] == 8 * 150 > both.last[2] - there.last[2] > 0
    # Eight blocks of 50 ns, and one token.
    assert there.steps[2, c.L_TOKENS] == 1
    one = served(Requests(np.zeros(1, np.int64), np.array([1]), np.array([1])), engine)
    took = there.last[2] - there.begun[2]
    assert 8 * 50 + one.last[0] <= took < without.last[2] - without.begun[2]


@pytest.mark.parametrize("rule", c.RULES)
@settings(max_examples=60)
@given(st.data())
def test_requests_that_come_with_their_prompts(rule: str, data: st.DataObject) -> None:
    requests = apart(data.draw(loads()), rule)
    engine = replace(data.draw(engines(requests, (rule,))), cached=False, brought=True)
    slow, fast = RULES[rule](requests, engine, price), served(requests, engine)
    slow.run()
    columns = (c.L_START, c.L_END, c.L_TOKENS, c.L_RUNNING, c.L_WAITING, c.L_BLOCKS)
    steps = [
        (s.start, s.end, sum(each[2] for each in s.parts), s.running, s.waiting, s.used) for s in slow.steps
    ]
    assert fast.steps[:, columns].tolist() == [list(each) for each in steps]
    for name in ("begun", "first", "last", "preempted", "again", "stalled"):
        assert getattr(fast, name).tolist() == [getattr(each, name) for each in slow.requests], name
    # A step for each token, and no more but what a preemption lost.
    made = (requests.output - 1).sum()
    assert made <= fast.steps[:, c.L_TOKENS].sum() <= made + (fast.again + (fast.preempted > 0)).sum()
    assert not fast.hit.any() and fast.most_blocks <= engine.blocks


@pytest.mark.parametrize("rule", c.RULES)
@settings(max_examples=60)
@given(st.data())
def test_drafts_are_those_of_the_reference(rule: str, data: st.DataObject) -> None:
    requests = data.draw(loads())
    drafts = data.draw(st.integers(1, 2))
    engine = data.draw(engines(requests, (rule,)))
    # As many tokens more as are drafted must fit, too.
    engine = replace(
        engine, budget=max(engine.budget, 8), sequences=min(engine.sequences, 8), blocks=engine.blocks + drafts,
        accepted=chances(drafts, data.draw(st.floats(1, 1 + drafts))),
    )  # fmt: skip
    slow, fast = RULES[rule](requests, engine, price), served(requests, engine)
    slow.run()
    steps = [
        (s.start, s.end, sum(each[2] for each in s.parts) + s.drafts, s.running, s.waiting, s.used)
        for s in slow.steps
    ]
    columns = (c.L_START, c.L_END, c.L_TOKENS, c.L_RUNNING, c.L_WAITING, c.L_BLOCKS)
    assert fast.steps[:, columns].tolist() == [list(each) for each in steps]
    for name in ("begun", "first", "last", "preempted", "hit", "again", "stalled"):
        assert getattr(fast, name).tolist() == [getattr(each, name) for each in slow.requests], name
    # None is lost, and the time of each adds up.
    assert (fast.last >= fast.first).all() and fast.most_blocks <= engine.blocks
    waits = joined(requests, [fast], [np.arange(len(requests))]).waits
    assert all((each >= 0).all() for each in waits.values())
    assert (sum(waits.values()) == fast.last - fast.requests.arrival).all()


def test_a_step_with_drafts_gives_as_many_tokens_as_are_said() -> None:
    output = 2_000
    requests = Requests(np.zeros(4, np.int64), np.full(4, 8), np.full(4, output))
    for drafts, mean in ((1, 1.8), (3, 3.39), (3, 4.0), (2, 1.0)):
        engine = Engine(64, 4, 16, 1_000, accepted=chances(drafts, mean), ahead=False)
        steps = served(requests, engine).steps
        assert 4 * (output - 1) / steps[:, c.L_DECODING].sum() == pytest.approx(mean, rel=0.03)


@settings(max_examples=60)
@given(st.data())
def test_ranks_that_share_experts_are_the_reference(data: st.DataObject) -> None:
    requests = data.draw(loads() | sessions())
    engine = replace(data.draw(engines(requests)), ranks=data.draw(st.integers(1, 3)))
    slow = Together(requests, engine, price)
    slow.run()
    fast = serve_replica(requests, engine, TOGETHER, "interpreted")
    columns = (c.L_START, c.L_END, c.L_TOKENS, c.L_RUNNING, c.L_WAITING, c.L_BLOCKS)
    assert fast.steps[:, columns].tolist() == [list(each) for each in slow.steps]
    for name in ("begun", "first", "last", "preempted", "hit", "again"):
        assert getattr(fast, name).tolist() == [getattr(each, name) for each in slow.requests], name


@settings(max_examples=40)
@given(st.data())
def test_what_ranks_that_share_experts_keep(data: st.DataObject) -> None:
    requests = data.draw(loads())
    ranks = data.draw(st.integers(1, 3))
    engine = replace(data.draw(engines(requests, c.RULES)), ranks=ranks, balance=data.draw(st.integers(0, 4)))
    found = serve_replica(requests, engine, TOGETHER, "interpreted")
    # None is lost, each has all its tokens, and the time of each adds up.
    assert (found.last >= found.first).all() and (found.first > found.begun).all()
    waits = joined(requests, [found], [np.arange(len(requests))]).waits
    assert all((each >= 0).all() for each in waits.values())
    assert (sum(waits.values()) == found.last - found.requests.arrival).all()
    assert found.most_blocks <= found.capacity and found.steps[:, c.L_TOKENS].max() <= ranks * engine.budget
    # What one rank would need takes no longer with more of them, but for what they wait for each other.
    if ranks > 1 and not requests.clients:
        alone = serve_replica(requests, replace(engine, ranks=1), TOGETHER, "interpreted")
        assert found.steps[:, c.L_RUNNING].max() >= alone.steps[:, c.L_RUNNING].max() - engine.sequences
        assert len(found.steps) <= 2 * len(alone.steps) + engine.balance


def test_prompts_wait_until_each_rank_has_one() -> None:
    # One decodes when the second request comes; the third comes long after.
    requests = Requests(np.array([0, 5_000, 300_000]), np.array([8, 8, 8]), np.array([40, 4, 4]))
    engine = Engine(64, 16, 4, 40, rule="trtllm", ranks=2, ahead=False)
    at_once, held = (
        serve_replica(requests, replace(engine, balance=each), TOGETHER, "interpreted") for each in (0, 5)
    )
    steps = [int((at_once.steps[:, c.L_START] < each.begun[1]).sum()) for each in (at_once, held)]
    assert steps[1] == steps[0] + 5


@settings(max_examples=60)
@given(st.data())
def test_what_every_engine_keeps(data: st.DataObject) -> None:
    requests = data.draw(loads() | sessions())
    engine = data.draw(engines(requests, c.RULES))
    found = served(requests, engine)
    arrival, steps = found.requests.arrival, found.steps
    if follows := requests.follows:
        # None comes before those that it follows are done.
        for r in range(len(requests)):
            if len(former := follows.of(r)):
                assert arrival[r] == found.last[former].max() + follows.delay[r]
    # No token before its request, its prompt and the tokens before it.
    assert (arrival <= found.begun).all() and (found.begun < found.first).all()
    assert (found.last - found.first >= 1000 * (requests.output - 1)).all()
    # None lost or computed twice, but what a preemption lost.
    needed, computed = (
        (requests.prompt + requests.output - 1).sum(),
        steps[:, c.L_TOKENS].sum() + found.hit.sum(),
    )
    # Whose last token is on its way computes nothing again.
    assert needed <= computed <= needed + found.again.sum()
    assert engine.ahead or computed == needed + found.again.sum()
    assert steps[:, c.L_TOKENS].max() <= engine.budget and steps[:, c.L_RUNNING].max() <= engine.sequences
    assert found.most_blocks == steps[:, c.L_BLOCKS].max() <= engine.blocks
    # One step at a time, and none is idle while a request is there.
    assert (steps[1:, c.L_START] >= steps[:-1, c.L_END]).all()
    for end, start in zip(steps[:-1, c.L_END], steps[1:, c.L_START], strict=True):
        # What the front end has, the engine does not yet.
        if start > end and not engine.token_ps + engine.ingest_ns:
            assert not ((arrival < start) & (found.last > end)).any()
    # Where the time went adds up.
    waits = joined(requests, [found], [np.arange(len(requests))]).waits
    assert all((each >= 0).all() for each in waits.values())
    assert (sum(waits.values()) == found.last - arrival).all()


@settings(max_examples=40)
@given(st.data())
def test_what_sglang_and_tensorrt_llm_keep(data: st.DataObject) -> None:
    requests = data.draw(loads())
    engine = data.draw(engines(requests, ("sglang", "trtllm")))
    found = served(requests, engine)
    if engine.rule == "sglang":
        # Prompts and tokens of answers are never in one step; the last token of a prompt that is computed again looks
        # like one of an answer.
        assert (
            found.preempted.any()
            or not ((found.steps[:, c.L_NEW] > 0) & (found.steps[:, c.L_DECODING] > 0)).any()
        )
    else:
        # Blocks were promised to whoever began.
        assert not found.preempted.any()
        # Only a prompt that is longer than a step is ever cut.
        if requests.prompt.max() <= engine.budget and not found.hit.any():
            assert (found.steps[:, c.L_NEW] > 0).sum() <= len(requests)


def test_the_last_token_of_a_cut_prompt_is_no_token_of_an_answer() -> None:
    requests = Requests(np.zeros(5, np.int64), np.array([1, 9, 1, 1, 1]), np.array([1, 1, 1, 1, 2]))
    steps = served(requests, Engine(3, 3, 1, 11, rule="sglang")).steps
    assert steps[:, c.L_NEW].tolist() == [3, 3, 3, 2, 2, 0]


def test_a_second_block_of_equal_content_is_found_when_the_first_is_taken() -> None:
    # Of a prompt one token at least is computed, so two fill a block with the same four; a third takes all free blocks,
    # among them that of the first, which is done.
    requests = Requests(
        np.array([0, 0, 1, 20_000]), np.array([4, 4, 43, 5]), np.array([1, 20, 1, 1]), 0,
        ((0,), (0,), (), (0,)), 4,
    )  # fmt: skip
    found = served(requests, Engine(64, 16, 4, 13, ahead=False))
    assert found.most_blocks == 13 and found.last[2] < found.begun[3] < found.last[1]
    assert found.hit.tolist() == [0, 0, 0, 4] and not found.preempted.any()


def test_a_front_end_takes_one_prompt_after_another() -> None:
    requests = Requests(np.zeros(3, np.int64), np.full(3, 10), np.ones(3, np.int64))
    engine = Engine(64, 16, 4, 40, ingest_ns=500, token_ps=1_000_000)
    assert served(requests, engine).begun.tolist()[0] == 500 + 10 * 1000
    assert served(requests, engine).begun.max() >= 500 + 30 * 1000


@settings(max_examples=30)
@given(st.data())
def test_nobody_misses_a_prefix_cache_without_shared_prefixes(data: st.DataObject) -> None:
    requests = replace(data.draw(loads()), shared=None)
    engine = replace(data.draw(engines(requests)), cached=True)
    slow = Reference(requests, engine, price)
    slow.run()
    assert served(requests, engine).last.tolist() == [each.last for each in slow.requests]


@pytest.mark.slow
def test_compiled_and_interpreted_are_equal() -> None:
    random = np.random.RandomState(3)
    n = 60
    requests = Requests(
        np.cumsum(random.randint(0, 3000, n)), random.randint(1, 40, n), random.randint(1, 40, n), 0,
        tuple((0,) * (each % 3 > 0) for each in range(n)), 1,
    )  # fmt: skip
    engine = Engine(32, 16, 4, 40)
    one, other = (serve_replica(requests, engine, TABLE, mode) for mode in ("interpreted", "compiled"))  # type: ignore[arg-type]
    assert one.preempted.sum() > 0 and one.hit.sum() > 0
    assert one.steps.tolist() == other.steps.tolist()
    assert one.last.tolist() == other.last.tolist()


def test_a_request_longer_than_the_cache_is_refused() -> None:
    requests = Requests(np.zeros(2, np.int64), np.array([8, 30]), np.array([4, 11]))
    with pytest.raises(InputError, match="request 1: 41 tokens of prompt and output, expected at most 40"):
        served(requests, Engine(64, 16, 4, 10))


def test_who_decodes_waits_for_steps_of_prompts() -> None:
    # The second prompt comes while the first request decodes, and has a step of its own.
    requests = Requests(np.array([0, 30_000]), np.array([8, 16]), np.array([40, 1]))
    found = served(requests, Engine(64, 16, 4, 40, rule="sglang", ahead=False))
    own = found.steps[(found.steps[:, c.L_NEW] == 16).nonzero()[0][0]]
    assert found.interfered.tolist() == [own[c.L_END] - own[c.L_START], 0]
