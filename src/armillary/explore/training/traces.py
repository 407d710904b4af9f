"""The last traces of steps: a fit simulates the same plans with other constants."""

from __future__ import annotations

import json
from collections import OrderedDict
from functools import lru_cache
from typing import Any

from armillary.base.garbage import give_back
from armillary.trace import Trace
from armillary.workload.emit.template import host_times
from armillary.workload.generate import generate, in_other_times, memory_of
from armillary.workload.models import Model, read_model
from armillary.workload.plan.schema import Plan

MEMORY = "memory"
"""Key of `Trace.about`."""
KEPT_NODES = 2_000_000
"""Nodes of the traces that are kept for the next simulation: some 300 MB."""


class Traces:
    """Traces by their models and plans. Plans that differ in the times of the host only have one graph, made once."""

    def __init__(self) -> None:
        self._kept: OrderedDict[tuple[str, str], tuple[str, Trace]] = OrderedDict()
        self._alike: dict[str, Trace] = {}
        """The last trace of those that differ in the times of the host only."""
        self._nodes = 0

    def of(self, model: str, plan: str, *, memory: bool = False) -> Trace:
        """Return the trace of a model and a plan, both JSON.

        Args:
            model: The model.
            plan: The plan.
            memory: Whether `Trace.about` says what the fullest rank needs.

        Raises:
            InputError: the plan is impossible.
        """
        key = model, plan
        found = self._kept[key][1] if key in self._kept else self._made(key)
        self._kept.move_to_end(key)
        if memory and MEMORY not in found.about:
            found.about[MEMORY] = memory_of(_model(model), Plan.model_validate(json.loads(plan)))
        return found

    def _made(self, key: tuple[str, str]) -> Trace:
        keys: dict[str, Any] = json.loads(key[1])
        plan = Plan.model_validate(keys)
        alike = key[0] + _without_times(keys, plan)
        known = self._alike.get(alike)
        model = _model(key[0])
        made = in_other_times(known, model, plan) if known else generate(model, plan, memory=False)
        self._kept[key], self._alike[alike] = (alike, made), made
        self._nodes += _nodes(made)
        # By their size, not by their number: traces of 512 microbatches are large.
        before = len(self._kept)
        while len(self._kept) > 1 and self._nodes > KEPT_NODES:
            _, (alike, oldest) = self._kept.popitem(last=False)
            self._nodes -= _nodes(oldest)
            if self._alike.get(alike) is oldest:
                del self._alike[alike]
        if len(self._kept) < before:
            give_back()
        return made


def _without_times(keys: dict[str, Any], plan: Plan) -> str:
    """Return a plan as text, of whose times of the host only remains whether there are any."""
    times = [bool(each) for each in host_times(plan.host, plan.pipeline.handshake)]
    host, pipeline = ({**keys.get(name, {})} for name in ("host", "pipeline"))
    # What is said in vain is told by its key, so these remain.
    said = sorted(host), "handshake" in pipeline, plan.host.graphs
    pipeline.pop("handshake", None)
    return json.dumps({**keys, "pipeline": pipeline, "host": [times, *said]}, sort_keys=True)


@lru_cache(maxsize=64)
def _model(text: str) -> Model:
    return read_model(json.loads(text))


def _nodes(trace: Trace) -> int:
    return sum(graph.n_nodes for graph in trace.graphs)


TRACES = Traces()
