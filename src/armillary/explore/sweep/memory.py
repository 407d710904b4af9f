"""Memory of the fullest NPU of a generated workload, fast for many plans of few models."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from armillary.workload.generate import replica_layers
from armillary.workload.layers.layer import Layer
from armillary.workload.layers.of_model import layers_of
from armillary.workload.memory.inference import worst_serving
from armillary.workload.memory.peak import most_needed
from armillary.workload.models import Model
from armillary.workload.models.schema import Decoder
from armillary.workload.pipeline.partition import partition
from armillary.workload.plan.schema import Data, Offload, Pipeline, Plan


def needed(model: Model, plan: Plan) -> int:
    """Return the bytes that the fullest NPU needs.

    Raises:
        InputError: the plan is impossible; names the number and the nearest that works.
    """
    return _needed(_Model(model), _Plan(plan))


@lru_cache(maxsize=256)
def _needed(model: _Model, plan: _Plan) -> int:
    """Return `needed`: neighbours in a sweep often differ in the machine only."""
    stages = partition(_layers(model.model, plan.plan), plan.plan)
    if plan.plan.serve:
        return worst_serving(stages, plan.plan).needed
    return most_needed(stages, plan.plan)


def _layers(model: Model, plan: Plan) -> Sequence[Layer]:
    # Other models, serving and parameter servers build layers from more of the plan.
    if isinstance(model, Decoder) and not plan.serve and plan.data.sharding != "parameter-server":
        return _decoder(_Model(model), _Plan(_alike(plan)))
    return replica_layers(model, plan)


class _Model:
    """A model compared by identity: hashing all its fields would cost more than the look-up saves."""

    def __init__(self, model: Model) -> None:
        self.model = model

    def __hash__(self) -> int:
        # `_decoder` keeps the model alive through its key, so the id is not reused.
        return id(self.model)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Model) and self.model is other.model


class _Plan:
    """A plan compared by its values, of which some are lists."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self._key = plan.model_dump_json()

    def __hash__(self) -> int:
        return hash(self._key)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Plan) and self._key == other._key


def _alike(plan: Plan) -> Plan:
    """Return a representative of all plans that give a decoder the same layers."""
    # Whatever layers do not depend on takes one value, so that thousands of plans share an
    # entry. Of pp it only matters whether it is above 1.
    parallel = plan.parallel.model_copy(
        update={"dp": None, "pp": min(plan.parallel.pp, 2), "order": "tp-cp-ep-dp-pp"}
    )
    return plan.model_copy(
        update={
            "ranks": 1,
            "batch": 1,
            "iterations": 1,
            "parallel": parallel,
            "pipeline": _PIPELINE,
            "data": _data(plan.data.sharding in ("fsdp", "hsdp")),
            "optimizer": "none",
            "offload": _OFFLOAD,
        }
    )


_PIPELINE, _OFFLOAD = Pipeline(), Offload()


@lru_cache(maxsize=2)
def _data(sharded: bool) -> Data:
    return Data(sharding="fsdp" if sharded else "ddp")


@lru_cache(maxsize=1024)
def _decoder(model: _Model, plan: _Plan) -> tuple[Layer, ...]:
    return tuple(layers_of(model.model, plan.plan))
