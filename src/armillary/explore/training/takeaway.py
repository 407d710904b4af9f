"""A plan to take away: a study file, and the flags that start such a run with Megatron-core or torchtitan."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from armillary.base.text import on_one_line
from armillary.explore.training.prediction import Prediction, headline, plan_text
from armillary.explore.training.unsaid import comment
from armillary.platform.files.preset import merged
from armillary.workload.models import default_sequence, load_model
from armillary.workload.models.schema import Decoder
from armillary.workload.plan.effects import idle
from armillary.workload.plan.request import keys_of
from armillary.workload.plan.schema import Plan

RECOMPUTE = {
    "none": "",
    "selective": "--recompute-activations",
    "full": "--recompute-granularity full --recompute-method uniform --recompute-num-layers 1",
}
"""Recomputation -> flags of Megatron-core."""


SCHEDULES = {"gpipe": "GPipe", "1f1b": "1F1B", "interleaved": "Interleaved1F1B"}
"""Schedule of a pipeline -> its name in torch.distributed.pipelining, which torchtitan takes."""
MEGATRON_STRATEGIES = {
    "zero-2": "optim_grads", "zero-3": "optim_grads_params", "fsdp": "optim_grads_params",
    "hsdp": "optim_grads_params",
}  # fmt: skip
"""Sharding that Megatron-FSDP does -> what it shares."""
MEGATRON_RECIPES = {"delayed": "delayed", "current": "tensorwise", "block": "blockwise", "mx": "mxfp8"}
"""Recipe of fp8 -> its name in Megatron-core."""


def study(found: Prediction, model: str) -> dict[str, Any]:
    """Return the study file whose simulation is the prediction, but for what a long step leaves out."""
    constants = found.software.fitted.constants
    values = {
        key: value
        for key, value in constants.plan(keys_of(found.plan)).items()
        if key not in ("ranks", "checkpoint_every", "checkpoint_async")
    }
    # What a software does by default says nothing of a plan that does not take it: a run would warn of it.
    for key in idle(Plan.model_validate({"ranks": found.plan.ranks, **values}), found.step.model):
        section, _, name = key.rpartition(".")
        if section:
            values[section] = {other: value for other, value in values[section].items() if other != name}
        else:
            del values[name]
    values = {key: value for key, value in values.items() if value != {}}
    own = constants.platform(found.machine.device)
    return {
        "workload": {"generate": {"model": model, **values}},
        "platform": merged(dict(found.machine.keys), own),
    }


def megatron(found: Prediction, model: Decoder) -> Iterator[str]:
    """Yield flags of Megatron-core (`pretrain_gpt.py`), a line for each purpose."""
    plan, own = found.plan, found.plan.parallel
    yield (
        f"--num-layers {model.layers} --hidden-size {model.hidden} --num-attention-heads {model.attention.heads} "
        f"--max-position-embeddings {model.context}"
    )
    if (kv := model.attention.kv_heads) and kv != model.attention.heads:
        yield f"--group-query-attention --num-query-groups {kv}"
    if model.mlp:
        yield f"--ffn-hidden-size {model.mlp.size}" + (" --swiglu" if model.activation == "swiglu" else "")
    if model.experts:
        yield (
            f"--num-experts {model.experts.count} --moe-router-topk {model.experts.top_k} "
            f"--moe-ffn-hidden-size {model.experts.size} --moe-grouped-gemm"
            + (f" --moe-latent-size {model.experts.latent}" if model.experts.latent else "")
        )
        yield f"--expert-model-parallel-size {own.ep} --expert-tensor-parallel-size {own.etp or own.tp}"
    yield f"--tensor-model-parallel-size {own.tp}" + (
        " --sequence-parallel" if own.tp > 1 and own.sequence else ""
    )
    if own.tp > 1 and own.overlap:
        yield "--tp-comm-overlap"
    yield f"--pipeline-model-parallel-size {own.pp} --context-parallel-size {own.cp}"
    if plan.pipeline.virtual > 1:
        yield f"--num-virtual-stages-per-pipeline-rank {plan.pipeline.virtual}"
    yield f"--micro-batch-size {plan.microbatch} --global-batch-size {plan.batch} --seq-length {_sequence(plan, model)}"
    if strategy := MEGATRON_STRATEGIES.get(plan.data.sharding):
        yield f"--use-megatron-fsdp --data-parallel-sharding-strategy {strategy} --ckpt-format fsdp_dtensor"
    elif plan.data.sharding != "ddp":
        yield "--use-distributed-optimizer"
    if plan.data.overlap:
        yield "--overlap-grad-reduce" + ("" if plan.data.sharding == "ddp" else " --overlap-param-gather")
    if plan.recompute_modules:
        yield f"--recompute-granularity selective --recompute-modules {' '.join(plan.recompute_modules)}"
    elif RECOMPUTE[plan.recompute]:
        yield RECOMPUTE[plan.recompute]
    yield "--bf16" + _low_precision(plan)
    if plan.numbers.gradients == "bf16":
        yield "--grad-reduce-in-bf16"
    if plan.checkpoint_every:
        yield f"--save-interval {plan.checkpoint_every}" + " --async-save" * plan.checkpoint_async


def _low_precision(plan: Plan) -> str:
    """Return the flags of GEMMs in fp8 or fp4, and of their recipe."""
    recipe = MEGATRON_RECIPES.get(plan.numbers.recipe or "", "")
    if plan.numbers.compute == "fp8":
        form = "e4m3" if plan.numbers.recipe in ("mx", "block") else "hybrid"
        return f" --fp8-format {form}" + (f" --fp8-recipe {recipe}" if recipe else "")
    return " --fp4-format e2m1 --fp4-recipe nvfp4" if plan.numbers.compute == "fp4" else ""


def left_out(plan: Plan) -> dict[str, str]:
    """Return the files that are not written of a plan -> why: the software has no such pipeline."""
    schedule = plan.pipeline.schedule
    if plan.parallel.pp == 1:
        return {}
    found = {}
    if schedule not in ("1f1b", "interleaved"):
        found["megatron-core.sh"] = f"Megatron-core has no schedule {schedule}"
    if schedule not in SCHEDULES:
        found["torchtitan.toml"] = f"torchtitan has no schedule {schedule}" + (
            ", its DualPipeV has one copy of the weights and not two" if schedule == "dualpipe" else ""
        )
    return found


def torchtitan(found: Prediction, model: Decoder) -> Iterator[str]:
    """Yield the lines of a torchtitan job file (TOML)."""
    plan, own = found.plan, found.plan.parallel
    replicas = plan.ranks // (own.tp * own.pp * own.cp)
    yield f"# {plan_text(plan)}"
    yield from comment(found, model, "torchtitan")
    yield "[training]"
    # A pipeline cuts the local batch into microbatches; without one torchtitan accumulates local batches.
    yield f"local_batch_size = {plan.batch // replicas if own.pp > 1 else plan.microbatch}"
    yield f"global_batch_size = {plan.batch}"
    yield f"seq_len = {_sequence(plan, model)}"
    yield ""
    yield "[parallelism]"
    shard = plan.data.shard or replicas
    sharded = plan.data.sharding in ("fsdp", "zero-3", "hsdp")
    yield f"data_parallel_shard_degree = {shard if sharded else 1}"
    yield f"data_parallel_replicate_degree = {replicas // shard if sharded else replicas}"
    yield f"tensor_parallel_degree = {own.tp}"
    yield f"enable_async_tensor_parallel = {str(own.tp > 1 and own.overlap).lower()}"
    yield f"context_parallel_degree = {own.cp}"
    yield f"pipeline_parallel_degree = {own.pp}"
    if own.pp > 1:
        yield f'pipeline_parallel_schedule = "{SCHEDULES[plan.pipeline.schedule]}"'
        yield f"pipeline_parallel_microbatch_size = {plan.microbatch}"
    if model.experts:
        yield f"expert_parallel_degree = {own.ep}"
    yield ""
    yield "[activation_checkpoint]"
    # Its selective mode is by operations, or of every N-th layer as a whole.
    layers = plan.recompute == "full" and plan.recompute_every > 1
    yield f'mode = "{"selective" if layers else plan.recompute}"'
    if layers or plan.recompute == "selective":
        yield f'selective_ac_option = "{plan.recompute_every if layers else "op"}"'
    if plan.checkpoint_every:
        yield ""
        yield "[checkpoint]"
        yield f"interval = {plan.checkpoint_every}"
        if plan.checkpoint_async:
            yield 'async_mode = "async"'


def write(folder: Path, found: Prediction, name: str) -> list[Path]:
    """Write ``study.yaml``, ``megatron-core.sh`` and ``torchtitan.toml`` to a folder, and return them.

    Files of a software that cannot run the plan are left out, see `left_out`.

    Args:
        folder: It is made.
        found: The prediction.
        name: Of the model, as the user said it.
    """
    import yaml

    from armillary.base.files import make_folder, write_text

    model = load_model(name)
    # A model file is found from everywhere.
    said = str(Path(name).resolve()) if Path(name).suffix else name
    texts = {
        "study.yaml": f"# {on_one_line(headline(found))}\n"
        + yaml.safe_dump(study(found, said), sort_keys=False, width=110, allow_unicode=True)
    }
    refused = left_out(found.plan)
    if isinstance(model, Decoder) and "megatron-core.sh" not in refused:
        texts["megatron-core.sh"] = "\n".join(
            ["# Flags of pretrain_gpt.py; data, tokenizer and learning rate are yours."]
            + [*comment(found, model, "megatron-core"), "FLAGS=("]
            + [f"  {line}" for line in megatron(found, model)]
            + [")", ""]
        )
    if isinstance(model, Decoder) and "torchtitan.toml" not in refused:
        texts["torchtitan.toml"] = "\n".join([*torchtitan(found, model), ""])
    make_folder(folder)
    paths = [folder / each for each in texts]
    for path, text in zip(paths, texts.values(), strict=True):
        write_text(path, text)
    return paths


def _sequence(plan: Plan, model: Decoder) -> int:
    return plan.sequence or default_sequence(model) or model.context
