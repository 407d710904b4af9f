"""The workloads of a mix: the least time that one takes on a machine, and the time that it takes."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from math import inf
from typing import Any, Protocol

import numpy as np

from armillary.base.errors import InputError
from armillary.compute.gpu.device import load_gpu
from armillary.compute.machine import Machine, machine_of
from armillary.explore.deploy.kinds import spreads_of
from armillary.explore.training.choose import SlowerError, plan
from armillary.explore.training.plan_keys import nested
from armillary.explore.training.prediction import Prediction, plan_text
from armillary.explore.training.train import predicted
from armillary.platform.kernels import PRECISIONS
from armillary.serving.load import cut
from armillary.serving.outcome import WAITS
from armillary.serving.rate import CLOSE, largest
from armillary.serving.requests import Ints, Requests
from armillary.serving.result import Serving, seconds_text
from armillary.serving.service import limits_of, service
from armillary.serving.spread import Wanted, plan_of
from armillary.workload.layers.of_model import inference_layers
from armillary.workload.models import Model, flops
from armillary.workload.models.operations import HEAD
from armillary.workload.models.schema import Decoder

LONG_ENOUGH = 10
"""Times that a request takes, for which a load lasts at least if its rate is to be trusted: queues grow as slowly."""
MOST_FLOP = 10**300
Tell = Callable[[str, int, int], None]


@dataclass(frozen=True)
class Taken:
    """What a workload takes on a machine.

    Attributes:
        seconds: For one unit of it: a sample, or a good request, by the whole machine.
        interval: Between which 9 of 10 measured times are expected, in s; None: not known.
        own: Standard deviation of ln(measured / predicted) that machines of one device do not share.
        how: Plan, or replicas.
        limits: What takes most of it.
        assumptions: Sentences: what nobody said and moves the answer.
    """

    seconds: float
    interval: tuple[float, float] | None
    own: float
    how: str
    limits: str
    assumptions: tuple[str, ...]


class Workload(Protocol):
    """A workload of a mix; `weight` is its share of the mix, `unit` what it does, `key` what it depends on."""

    @property
    def weight(self) -> float: ...  # noqa: D102 - of the protocol
    @property
    def name(self) -> str: ...  # noqa: D102 - of the protocol
    @property
    def unit(self) -> str: ...  # noqa: D102 - of the protocol
    @property
    def key(self) -> Any: ...  # noqa: D102 - of the protocol

    def least(self, machine: Machine) -> float:
        """Return a lower bound of the s of a unit, by peaks alone."""

    def take(self, machine: Machine, within: float, tell: Tell) -> Taken:
        """Return what a unit takes.

        Raises:
            SlowerError: it cannot take as little as `within`.
            InputError: it is impossible on the machine.
        """


@dataclass(frozen=True)
class Training:
    """A model that is trained.

    Attributes:
        model: The model.
        batch: Samples of a step.
        plan: Keys of the plan.
        software: What it is trained with; "": what suits the machine.
        weight: Share of the mix.
    """

    model: Model
    batch: int
    plan: Mapping[str, Any]
    software: str
    weight: float

    @property
    def name(self) -> str:
        """Such as "train llama-3-8b"."""
        return f"train {self.model.name}"

    @property
    def unit(self) -> str:
        """What a unit is."""
        return "samples"

    @property
    def key(self) -> Any:
        """What its result depends on, but for the machine."""
        return ["train", self.model.model_dump(mode="json"), self.batch, dict(self.plan), self.software]

    @property
    def precisions(self) -> Collection[str]:
        """What its GEMMs may compute in."""
        numbers = nested(self.plan).get("numbers") or {}
        if isinstance(numbers, Mapping) and (said := numbers.get("compute")):
            return "bf16", "fp32", str(said)
        # What a named software trains in by default, nobody has said here.
        return PRECISIONS if self.software else ("bf16", "fp32")

    @cached_property
    def operations(self) -> float:
        """FLOP of a sample that no plan avoids."""
        decoder = isinstance(self.model, Decoder)
        sequence = self.plan.get("sequence")
        whole = flops(self.model, 1, sequence if isinstance(sequence, int) else None, causal=decoder)
        # With adapters, weights that stand still need no gradient of their own.
        found = 2 * whole.forward if self.plan.get("lora") else whole.training
        # What is beyond a float is refused when its plan is made.
        return float(found) if found < MOST_FLOP else inf

    def least(self, machine: Machine) -> float:
        """See `Workload`."""
        return self.operations / (machine.npus * peak(machine, self.precisions))

    def take(self, machine: Machine, within: float, tell: Tell) -> Taken:
        """See `Workload`."""
        steps = self.batch * int(self.plan.get("iterations", 1))
        if "parallel" in nested(self.plan):
            found = predicted(self.model, machine, {**self.plan, "batch": self.batch}, self.software)
            if found.memory.fits is False:
                raise InputError("the plan does not fit into memory")
        else:
            try:
                found = plan(
                    self.model, machine, batch=self.batch, software=self.software, top=1,
                    within=within * steps, progress=tell, **self.plan,
                ).best  # fmt: skip
            except SlowerError as error:
                raise SlowerError(error.seconds / steps) from None
        return _of_prediction(found, steps)


def _of_prediction(found: Prediction, steps: int) -> Taken:
    low, high = found.interval_s
    return Taken(
        found.step_time_s / steps, (low / steps, high / steps), found.software.fitted.spread.step,
        plan_text(found.plan), found.limits, found.assumptions,
    )  # fmt: skip


@dataclass(frozen=True)
class Service:
    """A model that is served: its goodput is the rate of good requests, by DistServe's definition (arXiv 2401.09670).

    Attributes:
        model: The model.
        requests: Of the load, whose rate is looked for.
        slo: What a good request meets.
        share: Of the requests that must be good.
        options: Of the engine.
        weight: Share of the mix.
    """

    model: Model
    requests: Requests
    slo: str
    share: float
    options: Mapping[str, Any]
    weight: float

    @property
    def name(self) -> str:
        """Such as "serve llama-3.1-8b"."""
        return f"serve {self.model.name}"

    @property
    def unit(self) -> str:
        """What a unit is."""
        return "good requests"

    @property
    def key(self) -> Any:
        """What its result depends on, but for the machine."""
        of = self.requests
        arrays = [each.tolist() for each in (of.arrival, of.prompt, of.output)]
        return [
            "serve", self.model.model_dump(mode="json"), arrays, of.shared, of.shared_block, self.slo,
            self.share, dict(self.options),
        ]  # fmt: skip

    @property
    def precisions(self) -> Collection[str]:
        """What its GEMMs may compute in."""
        return (
            "bf16",
            "fp32",
            *(str(self.options[key]) for key in ("precision", "experts") if key in self.options),
        )

    @cached_property
    def operations(self) -> float:
        """FLOP of a request that no engine avoids: those of matrices, on all tokens that no cache can hold."""
        whole = flops(self.model, 1, 1)
        tokens = self.requests.output.astype(float)
        if self.requests.shared is None:
            tokens = tokens + self.requests.prompt - 1
        return float((whole.forward - whole.parts.get(HEAD, 0)) * tokens.mean())

    @cached_property
    def read(self) -> float:
        """Bytes of keys and values that no engine avoids reading for a request; 0: not known."""
        assert isinstance(self.model, Decoder)
        if self.model.attention.sparse is not None:
            return 0.0  # of a sparse attention few of them
        given = {key: self.options[key] for key in ("cache_precision",) if key in self.options}
        one = plan_of(self.model, "", 1, 1, Wanted(**given))
        # Keys that the first token after the prompt sees: later ones see more.
        context = max(1, int(self.requests.prompt.mean()))
        layers = inference_layers(self.model, one, tokens=1, context=context, batch=1)
        steps = float((self.requests.output - 1).mean()) / (1 + int(self.options.get("drafts", 0)))
        return sum(layer.cache for layer in layers) * steps

    def least(self, machine: Machine) -> float:
        """See `Workload`."""
        return (
            max(self.operations / peak(machine, self.precisions), self.read / bandwidth(machine))
            / machine.npus
        )

    def take(self, machine: Machine, within: float, tell: Tell) -> Taken:
        """See `Workload`."""
        key = json.dumps([machine.domain, _node(machine)], sort_keys=True, default=str)
        if key not in self._nodes:
            self._nodes[key] = self._best_of(machine, tell)
        return _of_serving(self._nodes[key], machine)

    @cached_property
    def _nodes(self) -> dict[str, Serving]:
        """Node -> the load on the replica of the most requests per device."""
        return {}

    def _best_of(self, machine: Machine, tell: Tell) -> Serving:
        """Return the load on the replica that serves most requests per device.

        All replicas share the load evenly, and in a node the fabric does not matter. Beyond a node all-reduces go over
        the fabric: only where nothing smaller serves.

        Raises:
            InputError: there is no replica.
        """
        problem: InputError | None = None
        nodes = [_node(machine), machine.keys] if len(machine.platform.dimensions) > 1 else [machine.keys]
        for keys in nodes:
            try:
                place = replace(machine_of(keys), name=machine.name, assumptions=machine.assumptions)
            except InputError as error:
                problem = problem or error
                continue
            kinds = [own for _, own in spreads_of(self.model, place)]
            if {"tp", "dp", "ep"} & self.options.keys():
                kinds = [{}]
            found: list[Serving] = []
            for done, own in enumerate(kinds):
                try:
                    found.append(self._fastest(place, Wanted(**{**own, **self.options})))
                except InputError as error:
                    problem = problem or error
                tell("serving", done + 1, len(kinds))
            if found:
                return max(found, key=lambda each: _rate(each) / each.service.devices)
        raise problem or InputError("no replica is possible")

    def _fastest(self, machine: Machine, wanted: Wanted) -> Serving:
        """Return what becomes of the load on one replica, when it comes as fast as the objective allows."""
        one, limits = (
            replace(service(self.model, machine, self.requests, wanted), replicas=1),
            limits_of(self.slo),
        )

        def good(speed: float) -> float:
            return float(one.run(cut(self.requests, None, speed)).good(limits).mean())

        found = largest(good, self.share)
        return Serving(one, one.run(cut(self.requests, None, found.speed)), limits, found, self.share)


def _of_serving(found: Serving, machine: Machine) -> Taken:
    of = found.service
    replicas = machine.npus // of.devices
    seconds = 1 / (replicas * _rate(found))
    tpot = found.tpot_s.mean
    ends = found.interval_s("tpot")
    interval = None if ends is None else (seconds * ends[0] / tpot, seconds * ends[1] / tpot)
    kind = f"dp {of.engine.ranks}" if of.engine.ranks > 1 else f"tp {of.plan.parallel.tp}"
    waits = {name: float(np.sum(each)) for name, each in found.outcome.waits.items()}
    most = max(waits, key=lambda each: waits[each])
    text = (
        f"{WAITS[most]}, {100 * waits[most] / max(sum(waits.values()), 1e-9):.0f} % of the time of requests"
    )
    span, each = float(_arrival(found)[-1] - _arrival(found)[0]) * 1e-9, found.e2e_s.mean
    short = (
        [
            f"at its greatest rate the load lasts {seconds_text(span)}, and a request {seconds_text(each)}: queues "
            "have no time to grow, so that the rate may be too large; expected more requests"
        ]
        if span < LONG_ENOUGH * each
        else []
    )
    return Taken(seconds, interval, CLOSE, f"{replicas:,} x {kind}", text, (*short, *of.assumptions))


def _rate(found: Serving) -> float:
    """Return the good requests a second of one replica."""
    arrival = _arrival(found)
    return (len(arrival) - 1) / max(float(arrival[-1] - arrival[0]) * 1e-9, 1e-9) * (found.good or 0.0)


def _arrival(found: Serving) -> Ints:
    """Return when the requests of a load came, in ns."""
    return found.outcome.requests.arrival


def _node(machine: Machine) -> Mapping[str, Any]:
    """Return the keys of the innermost dimension of a machine alone."""
    network = machine.keys["network"]
    return {**machine.keys, "network": network[:1] if isinstance(network, list) else network}


def peak(machine: Machine, precisions: Collection[str]) -> float:
    """Return FLOP/s that a device reaches at most in some precisions; infinity: not known."""
    stated = machine.platform.npu.peak
    peaks = [*(stated.items() if isinstance(stated, dict) else (("", stated),))]
    if machine.device:
        peaks += load_gpu(machine.device).peaks.items()
    return max(
        (float(each) for name, each in peaks if each and (not name or name in precisions)), default=inf
    )


def bandwidth(machine: Machine) -> float:
    """Return bytes/s of the memory of a device; infinity: not known."""
    stated = (machine.platform.npu.memory.bandwidth or 0) * 1e9
    of_device = load_gpu(machine.device).bandwidth if machine.device else 0.0
    return max(stated, of_device) or inf


def with_weights(mix: tuple[Training | Service, ...]) -> tuple[Training | Service, ...]:
    """Return workloads whose weights add up to 1."""
    whole = sum(each.weight for each in mix)
    return tuple(replace(each, weight=each.weight / whole) for each in mix)
