"""Bytes of every collective follow from what is divided: each list is written out by hand."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from armillary.base.errors import InputError
from armillary.trace import CollectiveType
from armillary.workload.layers.layer import Layer, Step
from armillary.workload.layers.of_model import inference_layers, layers_of
from armillary.workload.models import Decoder, Model, read_model
from armillary.workload.plan.schema import Plan

HIDDEN, SEQUENCE, BATCH = 48, 64, 2
GATHER, SCATTER = CollectiveType.ALL_GATHER, CollectiveType.REDUCE_SCATTER
REDUCE, EXCHANGE = CollectiveType.ALL_REDUCE, CollectiveType.ALL_TO_ALL


def decoder(**changes: object) -> Decoder:
    attention = {"heads": 8, "kv_heads": 4, "head_size": 6}
    data = {"kind": "decoder", "name": "small", "layers": 2, "hidden": HIDDEN, "vocabulary": 96}
    data |= {"context": SEQUENCE, "tied": False, "norm": "rms", "activation": "swiglu"}
    model = read_model(data | {"attention": attention, "mlp": {"size": 64}} | changes)
    assert isinstance(model, Decoder)
    return model


def layers(model: Model, ranks: int, expert_rank: int = 0, **changes: object) -> list[Layer]:
    data = {"ranks": ranks, "batch": BATCH * ranks, "microbatch": BATCH} | changes
    return layers_of(model, Plan.model_validate(data), expert_rank)


def sent(steps: Iterable[Step]) -> list[tuple[CollectiveType | int, str, int]]:
    """Return (type or shift, axes, size) of all communication."""
    return [
        (step.shift if step.collective is None else step.collective, step.axes, step.size)
        for step in steps
        if step.collective is not None or step.shift
    ]


@pytest.mark.parametrize(("compute", "element"), [("bf16", 2), ("fp8", 2), ("fp32", 4)])
def test_tensor_and_sequence_parallel(compute: str, element: int) -> None:
    first, one, *_, last = layers(decoder(), 4, parallel={"tp": 4}, numbers={"compute": compute})
    whole = BATCH * SEQUENCE * HIDDEN * element
    own = whole // 4
    assert sent(one.forward) == [(GATHER, "tp", own), (SCATTER, "tp", whole)] * 2
    into_row, into_column = [(GATHER, "tp", own)], [(GATHER, "tp", own), (SCATTER, "tp", whole)]
    assert sent(one.backward) == (into_row + into_column) * 2
    assert sent(first.forward) == [(SCATTER, "tp", whole)]
    assert sent(first.backward) == [(GATHER, "tp", own)]
    sums = [(REDUCE, "tp", BATCH * SEQUENCE * 4)] * 3  # maximum, target, sum of exponents in fp32
    assert sent(last.forward) == [(GATHER, "tp", own), *sums]
    assert sent(last.backward) == into_column
    assert one.boundary == first.boundary == own


def test_tensor_parallel() -> None:
    first, one, *_, last = layers(decoder(), 4, parallel={"tp": 4, "sequence": False})
    whole = BATCH * SEQUENCE * HIDDEN * 2
    assert sent(one.forward) == sent(one.backward) == [(REDUCE, "tp", whole)] * 2
    assert sent(first.forward) == sent(last.backward) == [(REDUCE, "tp", whole)]
    assert one.boundary == whole


def test_a_norm_over_all_heads_sums_squares_over_tp() -> None:
    attention = {"heads": 8, "kv_heads": 4, "head_size": 6, "qk_norm": True}
    parallel = {"tp": 4, "sequence": False}
    for over, sums in (("head", []), ("all", [(REDUCE, "tp", BATCH * SEQUENCE * 2 * 4)])):
        model = decoder(attention=attention | {"qk_norm_over": over})
        one = layers(model, 4, parallel=parallel)[1]
        assert sent(one.forward)[:-2] == sums
        assert [each for each in sent(one.backward) if each[2] == BATCH * SEQUENCE * 8] == sums
        assert not sent(layers(model, 1)[1].forward)


def test_gradient_of_a_weight_waits_for_its_gathered_input_only() -> None:
    one = layers(decoder(), 4, parallel={"tp": 4})[1]
    weight = next(step for step in one.weight if step.name == "qkv.weight")
    assert weight.after == ("qkv.input", "qkv.gather")
    gather, gemm = (next(s for s in one.backward if s.name == f"qkv.{n}") for n in ("gather", "input"))
    assert gather.after == gemm.after


@pytest.mark.parametrize("cp", [2, 4])
def test_ring(cp: int) -> None:
    one = layers(decoder(), cp * 2, parallel={"cp": cp, "tp": 2})[1]
    kv = BATCH * SEQUENCE // cp * (4 // 2) * (6 + 6) * 2
    assert [each for each in sent(one.forward) if each[1] == "cp"] == [(1, "cp", kv)] * (cp - 1)
    assert [each for each in sent(one.backward) if each[1] == "cp"] == [(-1, "cp", kv)] * 2 * (cp - 1)


@pytest.mark.parametrize("cp", [2, 4, 8])
def test_gradients_of_keys_and_values_come_home(cp: int) -> None:
    """Keys go round, then back from where they are; the sum of each meets all queries and ends on its own rank."""
    one = layers(decoder(), cp, parallel={"cp": cp})[1]
    place, queries, summed = 0, {0}, None
    for step in one.forward:
        place = (place + step.shift) % cp
        queries.add(place)
    assert queries == set(range(cp))
    for step in one.backward:
        if step.shift and "sum" not in step.name:
            place = (place + step.shift) % cp
        elif step.shift:
            summed = ((cp - 1 if summed is None else summed) + step.shift) % cp
    assert summed == 0


def test_a_chunk_of_the_ring_is_computed_while_the_next_arrives() -> None:
    one = layers(decoder(), 4, parallel={"cp": 4})[1]
    steps = {step.name: step for step in one.forward}
    for chunk in range(1, 4):
        assert set(steps[f"core.attend {chunk}"].after or ()) == {
            f"core.attend {chunk - 1}",
            f"core.pass {chunk}",
        }
        assert f"core.attend {chunk - 1}" not in (steps[f"core.pass {chunk}"].after or ())


def test_zigzag_chunks() -> None:
    """Ranks have chunks i and 2·cp − 1 − i: scores counted one by one."""
    one = layers(decoder(), 4, parallel={"cp": 4}, causal=True)[1]
    length = SEQUENCE // 8
    for rank in range(4):
        found = []
        for turn in range(4):
            source = (rank - turn) % 4
            queries = [q for chunk in (rank, 7 - rank) for q in range(chunk * length, (chunk + 1) * length)]
            keys = [k for chunk in (source, 7 - source) for k in range(chunk * length, (chunk + 1) * length)]
            found.append(sum(k <= q for q in queries for k in keys))
        attend = [step.flops for step in one.forward if "attend" in step.name]
        assert attend == [BATCH * count * 2 * 8 * (6 + 6) for count in found]


def test_gathered_context() -> None:
    one = layers(decoder(), 4, parallel={"cp": 4, "context": "all-gather"})[1]
    kv = BATCH * SEQUENCE // 4 * 4 * (6 + 6) * 2
    assert sent(one.forward) == [(GATHER, "cp", kv)]
    assert sent(one.backward) == [(GATHER, "cp", kv), (SCATTER, "cp", 4 * kv)]


def test_exchanged_heads() -> None:
    """Queries, keys, values and outputs one by one; backward outputs, then the three: never twice the same."""
    one = layers(decoder(), 4, parallel={"cp": 4, "context": "all-to-all"})[1]
    q, kv = BATCH * SEQUENCE // 4 * 8 * 6 * 2, BATCH * SEQUENCE // 4 * 4 * 6 * 2
    moved = [(EXCHANGE, "cp", size) for size in (q, kv, kv, q)]
    assert sent(one.forward) == moved
    assert sent(one.backward) == [moved[-1], *moved[:-1]]
    attend = next(step for step in one.forward if step.name == "core.attend")
    shape = attend.attention
    assert (shape.heads, shape.kv_heads, shape.queries, shape.keys) == (2, 1, SEQUENCE, SEQUENCE)
    ring = layers(decoder(), 4, parallel={"cp": 4})[1]
    assert one.flops == ring.flops and one.saved == ring.saved + q  # the output before and after


def test_exchanged_heads_must_divide() -> None:
    with pytest.raises(InputError, match=r"cp 8: expected a divisor of kv_heads of a rank 4 \(nearest: 4\)"):
        layers(decoder(), 8, parallel={"cp": 8, "context": "all-to-all"})


def test_latent_attention_gathers_small_vectors() -> None:
    latent = {"query_rank": 12, "kv_rank": 10, "plain_size": 6, "rotary_size": 2, "value_size": 4}
    one = layers(decoder(attention={"heads": 8, "latent": latent}), 2, parallel={"tp": 2})[1]
    own = BATCH * SEQUENCE // 2 * 2
    assert sent(one.forward)[:3] == [
        (GATHER, "tp", own * 12),
        (GATHER, "tp", own * (10 + 2)),
        (SCATTER, "tp", 2 * own * HIDDEN),
    ]
    assert sent(one.backward)[-4:] == [
        (GATHER, "tp", own * 10),
        (SCATTER, "tp", 2 * own * (10 + 2)),
        (GATHER, "tp", own * 12),
        (SCATTER, "tp", 2 * own * 12),
    ]


def test_experts() -> None:
    model = decoder(experts={"count": 8, "top_k": 3, "size": 16, "shared": 2})
    one = layers(model, 8, parallel={"tp": 2, "ep": 4, "etp": 2})[1]
    own = BATCH * SEQUENCE // 2 * HIDDEN * 2
    routed = [(EXCHANGE, "ep", 3 * own), (GATHER, "etp", 3 * own)]
    back = [(SCATTER, "etp", 2 * 3 * own), (EXCHANGE, "ep", 3 * own)]
    shared = [(GATHER, "tp", own), (SCATTER, "tp", 2 * own)]
    assert sent(one.forward)[2:] == [*routed, *back, *shared]
    assert sent(one.backward)[:7] == [(GATHER, "tp", own), *shared, *routed, *back]


def test_experts_on_smaller_vectors_are_sent_these() -> None:
    experts = {"count": 8, "top_k": 3, "size": 16}
    whole, small = (
        layers(decoder(experts=experts | more), 8, parallel={"ep": 8})[1]
        for more in ({}, {"latent": HIDDEN // 4})
    )
    for full, less in ((whole.forward, small.forward), (whole.backward, small.backward)):
        assert [(*each[:2], 4 * each[2]) for each in sent(less) if each[0] is EXCHANGE] == [
            each for each in sent(full) if each[0] is EXCHANGE
        ]


def test_experts_of_ranks_with_the_same_tokens() -> None:
    model = decoder(experts={"count": 8, "top_k": 3, "size": 16})
    one = layers(model, 8, parallel={"tp": 2, "ep": 4, "sequence": False})[1]
    own = BATCH * SEQUENCE * HIDDEN * 2
    there = [(EXCHANGE, "ep", 3 * own)] * 2 + [(REDUCE, "tp", own)]
    assert sent(one.forward)[1:] == there
    assert sent(one.backward)[:3] == there


def test_uneven_experts_send_what_others_receive() -> None:
    model = decoder(experts={"count": 8, "top_k": 2, "size": 16})
    plan = {"parallel": {"ep": 4}, "experts": {"skew": 1.0}}
    ranks = [layers(model, 4, rank, **plan)[1] for rank in range(4)]

    def splits(rank: int, name: str) -> tuple[int, ...]:
        step = next(step for step in ranks[rank].forward if step.name == name)
        assert sum(step.splits) == step.size
        return step.splits

    for a in range(4):
        for b in range(4):
            assert splits(a, "dispatch.exchange")[b] == splits(b, "combine.exchange")[a]
    loads = splits(0, "dispatch.exchange")
    assert sum(loads) == BATCH * SEQUENCE * 2 * HIDDEN * 2
    assert list(loads) == sorted(loads, reverse=True)
    assert loads[0] > loads[3] > 0


def test_serving_reduces_after_rows_and_gathers_logits() -> None:
    plan = Plan.model_validate({"ranks": 4, "batch": 4, "parallel": {"tp": 4}})
    first, one, *_, last = inference_layers(decoder(), plan, tokens=1, context=30, batch=6)
    whole = 6 * HIDDEN * 2
    assert sent(first.forward) == [(REDUCE, "tp", whole)]
    assert sent(one.forward) == [(REDUCE, "tp", whole)] * 2
    assert sent(last.forward) == [(GATHER, "tp", 6 * 96 // 4 * 2)]


@pytest.mark.parametrize("attention", ["flash", "unfused"])
@pytest.mark.parametrize("recompute", ["none", "selective", "full"])
@pytest.mark.parametrize(
    "parallel", [{}, {"tp": 2}, {"tp": 2, "sequence": False}, {"cp": 4}, {"tp": 2, "ep": 2, "etp": 1}]
)
def test_steps_name_earlier_ones_and_end_with_the_last(
    attention: str, recompute: str, parallel: dict[str, object]
) -> None:
    model = decoder(experts={"count": 4, "top_k": 2, "size": 16, "shared": 1, "dense_first": 1})
    attention = "flash" if "cp" in parallel else attention
    for layer in layers(model, 8, parallel=parallel, attention=attention, recompute=recompute, dropout=True):
        wanted = {name for step in layer.weight for name in step.after or ()}
        for steps in (layer.forward, layer.backward):
            names = [step.name for step in steps]
            assert len(set(names)) == len(names)
            waits: dict[str, set[str]] = {}
            for number, step in enumerate(steps):
                before = names[number - 1 : number] if step.after is None else step.after
                assert set(before) <= {"", *names[:number]}
                waits[step.name] = {step.name}.union(*(waits[each] for each in before if each))
            if names:
                assert set(names) - waits[names[-1]] <= wanted
        known = {step.name for step in layer.backward}
        for step in layer.weight:
            assert step.after is None or set(step.after) <= known
            assert step.after is not None or layer.name == "embedding"
