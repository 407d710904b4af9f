"""Prefill and decoding in pools of replicas of their own (disaggregation).

A request is computed up to its first token by a replica of the one pool; when all its prompt is, its keys and values go
over the network to a replica of the other, which decodes. So the pools are served one after the other: those that
prefill by the arrivals of the load, then the transfers, then those that decode by the ends of these. Engines differ in
where the first token leaves for the client (`FIRST`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from armillary.base.errors import InputError
from armillary.base.units import format_bytes, format_time
from armillary.compute.machine import Machine
from armillary.serving.outcome import Moved, Outcome
from armillary.serving.replica import Engine, check_fits
from armillary.serving.requests import Ints, Requests
from armillary.serving.service import Service, service
from armillary.serving.spread import Wanted
from armillary.serving.transfer import Links, Side, cache_bytes, links_of, moved
from armillary.workload.models import Model
from armillary.workload.models.schema import Decoder

FIRST = {
    "vllm": "is made by the decode pool, which computes the last token of the prompt once more",
    "sglang": "is sent when keys and values are with the decode pool",
    "trtllm": "is sent by the prefill pool",
}
"""Engine -> where the first token of a request comes from."""


@dataclass(frozen=True)
class Pools(Service):
    """A model that one pool of replicas decodes, after another has computed the prompts.

    Attributes:
        before: What computes prompts.
        links: What carries keys and values from its replicas to those that decode.
    """

    before: Service | None = None
    links: Links | None = None

    @property
    def prefill(self) -> Service | None:
        """What computes prompts."""
        return self.before

    @cached_property
    def devices(self) -> int:
        """Devices of both pools."""
        return self.replicas * self.replica_devices + (
            self.before.replicas * self.before.replica_devices if self.before else 0
        )

    def run(self, requests: Requests) -> Outcome:
        """Return what becomes of a load: both pools take requests in the order in which these come to them.

        Raises:
            InputError: a request can never be served, or clients wait for answers.
        """
        _open(requests)
        check_fits(requests, self.engine)
        assert self.before is not None and self.links is not None
        prompts = self.before.run(replace(requests, output=np.ones(len(requests), np.int64)))
        # vLLM computes the last token of the prompt where it decodes.
        again = int(self.engine.rule == "vllm")
        goes = np.flatnonzero(requests.output > 1 - again)
        order = goes[np.argsort(prompts.last[goes], kind="stable")]
        sinks = np.arange(len(order)) % self.replicas
        sizes = self.bytes_of(requests.prompt)
        there = prompts.last.copy()
        there[order] = moved(prompts.last[order], sizes[order], prompts.replica[order], sinks, self.links)
        # Requests come to a replica in the order in which their transfers end.
        lands = np.lexsort((order, there[order]))
        order, sinks = order[lands], sinks[lands]
        shares = [np.flatnonzero(sinks == each) for each in range(self.replicas) if (sinks == each).any()]
        load = replace(
            requests, arrival=there[order], prompt=requests.prompt[order] - again,
            output=requests.output[order] + again, shared=None, clients=0,
        )  # fmt: skip
        answers = self.served(load, shares)
        return _whole(requests, prompts, answers, order, there, sizes, self.engine.rule, goes)

    def bytes_of(self, prompt: Ints) -> Ints:
        """Return the bytes of keys and values of prompts of so many tokens."""
        assert isinstance(self.model, Decoder)
        return cache_bytes(self.model, self.plan, prompt)


def _whole(
    requests: Requests,
    prompts: Outcome,
    answers: Outcome,
    order: Ints,
    there: Ints,
    sizes: Ints,
    rule: str,
    goes: Ints,
) -> Outcome:
    """Return the outcome of a load whose prompts and answers were served apart."""

    def of(values: Ints, otherwise: Ints) -> Ints:
        found = otherwise.copy()
        found[order] = values
        return found

    none = np.zeros(len(requests), np.int64)
    sent = prompts.last
    begun, last = of(answers.begun, sent), of(answers.last, sent)
    first = {"vllm": of(answers.first, sent), "sglang": there, "trtllm": sent}[rule]
    carried = none.copy()
    carried[goes] = sizes[goes]
    return replace(
        prompts,
        requests=requests,
        replica=of(answers.replica, none - 1),
        first=first,
        last=last,
        preempted=prompts.preempted + of(answers.preempted, none),
        interfered=of(answers.interfered, none),
        stalled=of(answers.stalled, none),
        replicas=answers.replicas,
        moved=Moved(prompts.replica, sent, there, begun, carried, prompts.replicas),
    )


def _open(requests: Requests) -> None:
    if requests.clients:
        raise InputError(
            "prefill-replicas: clients of a closed loop send when they have their answer, expected an open load where "
            "prefill and decoding are apart"
        )
    if requests.follows is not None:
        raise InputError(
            "prefill-replicas: some requests follow others, expected a load whose times are all known where prefill "
            "and decoding are apart"
        )


def pools(model: Model, machine: Machine, requests: Requests, wanted: Wanted) -> Pools:
    """Return a model as two pools serve it, for loads like this one.

    Raises:
        InputError: as of `service`, or the replicas do not use all devices of the machine.
    """
    _open(requests)
    x, y = wanted.prefill_replicas, wanted.decode_replicas
    for name, value in (("prefill-replicas", x), ("decode-replicas", y)):
        if value < 1:
            raise InputError(f"{name} {value}: expected a whole number from 1, as the other pool has some")
    if wanted.pp != 1:
        raise InputError(f"pp {wanted.pp}: with prefill-replicas it is not modelled, expected pp 1")
    if wanted.replicas is not None:
        raise InputError(f"replicas {wanted.replicas}: expected prefill-replicas and decode-replicas alone")
    own = machine.npus // (x + y) if wanted.tp is None and wanted.dp == 1 else wanted.tp or 1
    decode = replace(wanted, tp=max(1, own), prefill_replicas=0, decode_replicas=0)
    if wanted.prefill_tp is None and wanted.prefill_dp is None:
        prefill = decode
    else:
        tp, dp = wanted.prefill_tp or 1, wanted.prefill_dp or 1
        prefill = replace(decode, tp=tp, dp=dp, ep=tp * dp if wanted.ep > 1 else 1)
    used = x * prefill.devices, y * decode.devices
    if sum(used) != machine.npus:
        raise InputError(
            f"prefill-replicas {x} of {prefill.devices:,} devices and decode-replicas {y} of {decode.devices:,}: "
            f"{sum(used):,} devices, expected {machine.npus:,}, those of machine {machine.name}"
        )
    if x == 1 and prefill.router != "round-robin":
        raise InputError(f"router {wanted.router}: expected round-robin, as one replica computes prompts")
    after = service(model, machine, requests, decode)
    before = after
    if prefill != decode:
        before = service(model, machine, replace(requests, output=np.ones(len(requests), np.int64)), prefill)
    return apart(before, after, x, y, requests)


def decoding(engine: Engine) -> Engine:
    """Return an engine as it decodes what others have computed: nothing is in front of it, or shared."""
    return replace(engine, brought=True, cached=False, ingest_ns=0, token_ps=0, poll=1)


def apart(before: Service, after: Service, x: int, y: int, requests: Requests) -> Pools:
    """Return two pools: `x` replicas like those of one service compute prompts, `y` like those of another decode.

    Args:
        before: What computes prompts, on the machine of `after`; may be the same.
        after: What decodes.
        x: Replicas that compute prompts.
        y: Replicas that decode.
        requests: A load, whose prompts are told about.
    """
    used = x * before.replica_devices, y * after.replica_devices
    # The larger replicas stand first: so none is on two nodes that could be on one.
    first = (0, used[0]) if before.replica_devices >= after.replica_devices else (used[1], 0)
    sides = (
        Side(first[0], x, before.plan.parallel.tp, before.engine.ranks),
        Side(first[1], y, after.plan.parallel.tp, after.engine.ranks),
    )
    engine = decoding(after.engine)
    kept = {name: getattr(after, name) for name in ("model", "machine", "plan", "capacity", "table")}
    links = links_of(after.machine.platform, *sides)
    found = Pools(
        **kept, engine=engine, assumptions=(), replicas=y, before=replace(before, replicas=x), links=links
    )
    size = int(found.bytes_of(np.array([max(1, int(requests.prompt.mean()))]))[0])
    slowest = max(links.alone(size, *at) for at in np.ndindex(links.rate.shape))
    told = (
        f"keys and values leave when a whole prompt is computed, {format_bytes(size)} of one of mean length, which "
        f"take {format_time(slowest)} alone, at {links.rate.min() / 10**6:,.4g} GB/s; transfers divide the links of "
        "the replicas that send and get them, and nothing else is on these",
        "replicas that decode take requests in turn; keys and values on their way or waiting for blocks are in neither "
        "cache, and those of a shared prefix go with each prompt",
        f"the first token {FIRST[engine.rule]}",
        "no run with separate pools was measured, so means have no interval",
    )
    return replace(found, assumptions=(*dict.fromkeys((*before.assumptions, *after.assumptions)), *told))
