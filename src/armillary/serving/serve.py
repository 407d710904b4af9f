"""`serve`: requests of a load, on a model, on a machine."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from armillary.base.document import Source
from armillary.base.errors import InputError, nearest, one_of
from armillary.base.kinds import check_kinds
from armillary.compute.machine import machine_of
from armillary.serving.changes import changes_of
from armillary.serving.load import cut, load_requests
from armillary.serving.pools import Pools, pools
from armillary.serving.rate import largest
from armillary.serving.requests import Requests
from armillary.serving.result import Serving
from armillary.serving.service import Service, limits_of, service
from armillary.serving.spread import Wanted
from armillary.serving.tiers import with_tiers
from armillary.workload.models import load_model


def find_rate(
    model: str | Path,
    machine: Source,
    load: str | Path | Requests,
    *,
    slo: str,
    share: float = 0.9,
    seed: int = 0,
    first: int | None = None,
    **options: Any,
) -> Serving:
    """Return what becomes of a load when it comes as fast as a share of its requests still meets an objective.

    The requests stay as they are; the time between them is divided by a factor, to 1 %. A load that lasts too short
    for queues to grow hides that it is too large: give it some minutes.

    Args:
        model: See `serve`, as for all others.
        machine: The machine.
        load: An open load.
        slo: Limits that a good request meets.
        share: Of the requests that must be good.
        seed: Of what is drawn.
        first: How many requests of the load are served.
        options: As of `serve`.

    Raises:
        InputError: something of it is wrong, even requests far apart miss the objective, or all at once meet it.
    """
    given = {"model": model, "seed": seed, "first": first, "slo": slo, "share": share}
    check_kinds(given, find_rate.__annotations__)
    if not 0 < share <= 1:
        raise InputError(
            f"find-rate {100 * share:g} %: expected a share of the requests above 0 %, up to 100 %"
        )
    if not slo:
        raise InputError("find-rate: there is no objective, expected one, e.g. --slo ttft=500ms,tpot=50ms")
    limits = limits_of(slo)
    requests = cut(load if isinstance(load, Requests) else load_requests(load, seed), first)
    if requests.clients:
        raise InputError(
            "find-rate: clients of a closed loop send when they have their answer, expected an open load"
        )
    if len(requests) < 2:
        raise InputError("find-rate: one request has no rate, expected more")
    if requests.at_once:
        raise InputError(
            "find-rate: all requests that follow no others come at once, expected such that come one after another"
        )
    served = _service(model, machine, requests, options, seed)

    def good(speed: float) -> float:
        return float(served.run(cut(requests, None, speed)).good(limits).mean())

    found = largest(good, share)
    return Serving(served, served.run(cut(requests, None, found.speed)), limits, found, share)


@dataclass(frozen=True)
class Around:
    """What replicas have around them: options of `serve` and `find_rate` besides those of `Wanted`.

    Attributes:
        fail: How replicas fail, e.g. ``mtbf=24h,repair=10min``; "": they do not.
        scale: How replicas are started and stopped, e.g. ``target=32,min=1,start=60s``; "": all of them serve.
        kv_host: Memory of the host for each replica, e.g. ``200GiB``, that keeps blocks which are taken on the devices;
            "": none.
        kv_host_rate: Of transfers from there to each device, e.g. ``50GB/s``; "": what is assumed.
        kv_ssd: Of its disk for each replica, for blocks that are taken there; "": none.
        kv_ssd_rate: Of transfers from there to each replica; "": what is assumed.
    """

    fail: str = ""
    scale: str = ""
    kv_host: str = ""
    kv_host_rate: str = ""
    kv_ssd: str = ""
    kv_ssd_rate: str = ""

    def __post_init__(self) -> None:
        """Refuse what is no text."""
        check_kinds(vars(self), Around.__annotations__)

    def tiered(self, found: Service, requests: Requests) -> Service:
        """Return a service whose hosts keep blocks, where prompts are computed.

        Raises:
            InputError: a value is wrong.
        """
        sizes, rates = (self.kv_host, self.kv_ssd), (self.kv_host_rate, self.kv_ssd_rate)
        if not any((*sizes, *rates)):
            return found
        if found.stages > 1:
            raise InputError(f"pp {found.stages}: with kv-host or kv-ssd it is not modelled, expected pp 1")
        if isinstance(found, Pools) and found.before:
            before = with_tiers(found.before, requests, sizes, rates)
            new = (each for each in before.assumptions if each not in found.before.assumptions)
            return replace(found, before=before, assumptions=(*found.assumptions, *new), measured=False)
        return with_tiers(found, requests, sizes, rates)

    def changing(self, found: Service, requests: Requests, seed: int) -> Service:
        """Return a service whose replicas fail, start and stop.

        Raises:
            InputError: a text is wrong, or the load or the service has what is not modelled with it.
        """
        changes = changes_of(self.fail, self.scale, seed, found.replicas)
        if changes is None:
            return found
        name = "fail" if self.fail else "scale"
        if found.stages > 1:
            raise InputError(f"{name}: with pp {found.stages} it is not modelled, expected pp 1")
        if found.prefill is not None:
            raise InputError(
                f"{name}: where prefill and decoding are apart it is not modelled, expected replicas alone"
            )
        if requests.clients:
            raise InputError(
                f"{name}: clients of a closed loop stay with a replica, expected an open load, or sessions"
            )
        notes = (*found.assumptions, *changes.notes())
        return replace(found, changes=changes, measured=False, assumptions=notes)


def _service(
    model: str | Path, machine: Source, requests: Requests, options: Mapping[str, Any], seed: int
) -> Service:
    """Return the service that the options of `serve` describe: attributes of `Wanted` and of `Around`."""
    around = {each.name: options[each.name] for each in fields(Around) if each.name in options}
    own = {name: value for name, value in options.items() if name not in around}
    names = [each.name for each in fields(Wanted)]
    for name in own:
        if name not in names:
            known = [*names, *(each.name for each in fields(Around))]
            raise InputError(f"serve: no option '{name}'{nearest(name, known)}, expected {one_of(known)}")
    wanted, outside = Wanted(**own), Around(**around)
    # Both are checked where either is said.
    apart = wanted.prefill_replicas or wanted.decode_replicas
    for name, value in (("prefill-tp", wanted.prefill_tp), ("prefill-dp", wanted.prefill_dp)):
        if value is not None and not apart:
            raise InputError(f"{name} {value}: expected it with prefill-replicas and decode-replicas only")
    build = pools if apart else service
    found = build(load_model(model), machine_of(machine), requests, wanted)
    return outside.changing(outside.tiered(found, requests), requests, seed)


def serve(
    model: str | Path,
    machine: Source,
    load: str | Path | Requests,
    *,
    seed: int = 0,
    first: int | None = None,
    speed: float = 1.0,
    slo: str = "",
    **options: Any,
) -> Serving:
    """Serve requests, by the rule of an engine, and return what becomes of each.

    Args:
        model: A name of ``armillary generate list``, a model file, or a Hugging Face config.json: a decoder.
        machine: A preset, which may be counted, a study or platform file, or what such a file holds.
        load: A text such as ``poisson:rate=4,requests=500,input=1024,output=256``, the file of a log, or requests.
        seed: Of what is drawn.
        first: How many requests of the load are served; None: all.
        speed: By which the time between requests is divided.
        slo: Limits that a good request meets, e.g. ``ttft=500ms,tpot=50ms``.
        options: Attributes of `armillary.serving.spread.Wanted`, ``tp``, ``precision``, ``budget`` and others, and of
            `Around`: ``fail``, ``scale``, ``kv_host`` and others.

    Raises:
        InputError: something of it is wrong, the model does not fit, or a request never does.
    """
    given = {"model": model, "seed": seed, "first": first, "speed": speed, "slo": slo}
    check_kinds(given, serve.__annotations__)
    limits = limits_of(slo) if slo else {}
    requests = cut(load if isinstance(load, Requests) else load_requests(load, seed), first, speed)
    found = _service(model, machine, requests, options, seed)
    return Serving(found, found.run(requests), limits)
