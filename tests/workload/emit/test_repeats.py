"""Tasks that are placed again as arrays, against all of them placed node by node."""

from __future__ import annotations

import gc
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from armillary.base.errors import InputError
from armillary.trace import Trace
from armillary.workload.emit import training
from armillary.workload.emit.repeats import Again, Place, Role
from armillary.workload.generate import generate
from armillary.workload.models.schema import Decoder
from armillary.workload.plan.schema import Plan

MODEL: dict[str, Any] = {
    "kind": "decoder", "name": "small", "layers": 9, "hidden": 64, "vocabulary": 100, "context": 32,
    "attention": {"heads": 4}, "norm": "rms", "activation": "swiglu", "mlp": {"size": 128},
}  # fmt: skip


class NodeByNode(Again):
    """Places no task as arrays."""

    def task(self, role: Role, microbatch: int, place: Place) -> None:
        self.settle()
        place(role, microbatch, False)


@st.composite
def plans(draw: st.DrawFn) -> dict[str, Any]:
    def one(*values: Any) -> Any:
        return draw(st.sampled_from(values))

    schedule = one("gpipe", "1f1b", "interleaved", "interleaved", "zero-bubble", "pipedream", "dualpipe")
    pp, tp, ep = one(2, 4) if schedule == "dualpipe" else one(1, 2, 3, 4), one(1, 2), one(1, 2)
    virtual = one(2, 3) if schedule == "interleaved" else 1
    pp = 2 if pp * virtual > 9 else pp
    sharding = one("ddp", "zero-1", "zero-2", "zero-3", "fsdp", "fsdp", "hsdp")
    microbatches = 2 * pp * one(1, 2, 3)
    return {
        "ranks": 4 * pp * tp, "batch": 4 * microbatches, "sequence": 32,
        "iterations": one(1, 2),
        "checkpoint_every": None if schedule == "pipedream" else one(None, 1),
        "parallel": {"pp": pp, "tp": tp, "sequence": tp > 1 and draw(st.booleans()), "ep": ep},
        "pipeline": {
            "schedule": schedule, "virtual": virtual, "overlap": one(False, False, True), "scatter": one(False, True),
            "handshake": one("0 us", "3 us"),
        },
        "data": {
            "sharding": sharding, "bucket": one("1 kB", "40 kB", "1 MB"), "overlap": draw(st.booleans()),
            "reshard": one(False, False, True), "prefetch": one(0, 1, 3), "limit": one(1, 2, 4),
            "copies": one(False, True) if sharding in ("zero-3", "fsdp", "hsdp") else False,
            "average": one("collective", "kernel") if sharding in ("ddp", "zero-1", "zero-2") else "collective",
            "shard": 2 if sharding == "hsdp" else None,
        },
        "numbers": one({}, {"compute": "fp8", "recipe": "delayed"}),
        "recompute": one("none", "full", "selective"),
        "offload": one({}, {"activations": 0.5}, {"weights": 0.5, "optimizer": 1.0}),
        "host": {"issue": one("0 us", "0 us", "1 us")},
    }  # fmt: skip


def equal(one: Trace, other: Trace) -> bool:
    """Tell whether all columns of all graphs are equal."""
    for mine, yours in zip(one.graphs, other.graphs, strict=True):
        for name, value in vars(mine.columns).items():
            if not np.array_equal(value, getattr(yours.columns, name)):
                return False
    return True


@settings(max_examples=25)
@given(plans(), st.booleans(), st.booleans())
def test_what_is_placed_again_equals_what_is_placed_node_by_node(
    chosen: dict[str, Any], tied: bool, experts: bool
) -> None:
    routed = {"count": 8, "top_k": 2, "size": 64, "every": 2} if experts else None
    model = Decoder.model_validate({**MODEL, "tied": tied, **({"experts": routed} if routed else {})})
    if not experts:
        chosen["parallel"]["ep"] = 1
    try:
        plan = Plan.model_validate(chosen)
        fast = generate(model, plan)
    except (InputError, ValueError) as error:
        # Not every draw is a plan; what is refused is refused before anything is placed.
        assert "expected" in str(error)
        return
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(training, "Again", NodeByNode)
        slow = generate(model, plan)
    assert equal(fast, slow)


def test_what_is_generated_leaves_nothing_for_the_garbage_collector() -> None:
    keys = {"ranks": 8, "batch": 64, "sequence": 32, "parallel": {"pp": 4}}
    plan, model = Plan.model_validate(keys), Decoder.model_validate({**MODEL, "tied": False})
    generate(model, plan)
    gc.collect()
    gc.disable()
    try:
        generate(model, plan)
        assert gc.collect() == 0
    finally:
        gc.enable()


def test_work_grows_with_distinct_tasks() -> None:
    placed = []

    class Counting(Again):
        def settle(self) -> None:
            placed.append(1)
            super().settle()

    def count(batch: int) -> int:
        keys = {"ranks": 8, "batch": batch, "sequence": 32, "parallel": {"pp": 4}}
        plan = Plan.model_validate({**keys, "pipeline": {"schedule": "interleaved", "virtual": 2}})
        placed.clear()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(training, "Again", Counting)
            generate(Decoder.model_validate({**MODEL, "tied": False}), plan)
        return len(placed)

    assert count(2 * 16) == count(2 * 64) < 200
