"""The fast peak against the whole line over time, and task columns against lists of tasks."""

from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from armillary.base.errors import InputError
from armillary.workload.generate import replica_layers
from armillary.workload.memory.footprint import worst
from armillary.workload.memory.outside import Outside
from armillary.workload.memory.peak import most_needed
from armillary.workload.models import read_model
from armillary.workload.pipeline.columns import task_columns
from armillary.workload.pipeline.partition import partition
from armillary.workload.pipeline.tasks import tasks
from armillary.workload.plan.schema import Plan

MODEL = {
    "kind": "decoder", "name": "tiny", "layers": 12, "hidden": 64, "vocabulary": 1000, "context": 128, "tied": False,
    "norm": "rms", "activation": "swiglu", "attention": {"heads": 4}, "mlp": {"size": 256},
}  # fmt: skip
EXPERTS = MODEL | {"experts": {"count": 4, "top_k": 2, "size": 64, "dense_first": 1}, "tied": True}
SCHEDULES = ("gpipe", "1f1b", "interleaved", "zero-bubble", "pipedream")


@st.composite
def plans(draw):
    schedule = draw(st.sampled_from(SCHEDULES))
    pp, tp, dp = (
        draw(st.sampled_from((1, 2, 3, 4, 6))),
        draw(st.sampled_from((1, 2))),
        draw(st.sampled_from((1, 2, 4))),
    )
    count = draw(st.integers(1, 12)) * (pp if schedule == "interleaved" else draw(st.sampled_from((1, 5))))
    microbatch = draw(st.sampled_from((1, 2)))
    sharding = draw(st.sampled_from(("ddp", "zero-1", "zero-2", "zero-3", "fsdp", "hsdp")))
    return Plan.model_validate(
        {
            "ranks": tp * pp * dp,
            "batch": dp * microbatch * count,
            "microbatch": microbatch,
            "iterations": draw(st.sampled_from((1, 2))),
            "parallel": {"tp": tp, "pp": pp, "ep": draw(st.sampled_from((1, dp)))},
            "pipeline": {"schedule": schedule, "virtual": draw(st.integers(1, 3)) if schedule == "interleaved" else 1},
            "data": {
                "sharding": sharding,
                "reshard": draw(st.booleans()),
                "shard": dp if sharding == "hsdp" else None,
                "bucket": draw(st.sampled_from(("1 kB", "25 MiB"))),
                "prefetch": draw(st.integers(0, 2)),
            },
            "recompute": draw(st.sampled_from(("none", "selective", "full"))),
            "optimizer": draw(st.sampled_from(("adam", "none"))),
            "offload": {"activations": draw(st.sampled_from((None, 0.5)))},
        }
    )  # fmt: skip


@settings(max_examples=60, deadline=None)
@given(plans(), st.sampled_from((MODEL, EXPERTS)), st.sampled_from((0.0, 0.05)))
def test_the_fast_peak_is_that_of_the_whole_line(plan, model, fragmentation):
    try:
        stages = partition(replica_layers(read_model(model), plan), plan)
        slow = worst(stages, plan, fragmentation=fragmentation, outside=Outside(7, 0)).needed
    except InputError:
        assume(False)
    assert most_needed(stages, plan, fragmentation=fragmentation, outside=Outside(7, 0)) == slow


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(SCHEDULES), st.integers(1, 5), st.integers(1, 3), st.integers(1, 9))
@example("zero-bubble", 4, 1, 2)
def test_columns_are_the_lists_of_tasks(schedule, pp, virtual, count):
    virtual, count = (virtual, count * pp) if schedule == "interleaved" else (1, count)
    for stage, order in enumerate(tasks(schedule, pp, virtual, count)):
        kind, chunk = task_columns(schedule, pp, virtual, count, stage)
        assert ["FBW"[each] for each in kind] == [task.kind for task in order]
        assert chunk.tolist() == [task.chunk for task in order]
