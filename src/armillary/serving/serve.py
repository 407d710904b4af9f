"""`serve`: requests of a load, on a model, on a machine."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import Any

from armillary.base.document import Source
from armillary.base.errors import InputError, nearest, one_of
from armillary.explore.training.machine import machine_of
from armillary.serving.load import cut, load_requests
from armillary.serving.requests import Requests
from armillary.serving.result import Serving
from armillary.serving.service import Wanted, limits_of, service
from armillary.workload.models import load_model


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
    """Serve requests, by the rule of vLLM V1, and return what becomes of each.

    Args:
        model: A name of ``armillary generate list``, a model file, or a Hugging Face config.json: a decoder.
        machine: A preset, which may be counted, a study or platform file, or what such a file holds.
        load: A text such as ``poisson:rate=4,requests=500,input=1024,output=256``, the file of a log, or requests.
        seed: Of what is drawn.
        first: How many requests of the load are served; None: all.
        speed: By which the time between requests is divided.
        slo: Limits that a good request meets, e.g. ``ttft=500ms,tpot=50ms``.
        options: Attributes of `armillary.serving.service.Wanted`: ``tp``, ``precision``, ``budget`` and others.

    Raises:
        InputError: something of it is wrong, the model does not fit, or a request never does.
    """
    names = [each.name for each in fields(Wanted)]
    for name in options:
        if name not in names:
            raise InputError(f"serve: no option '{name}'{nearest(name, names)}, expected {one_of(names)}")
    limits = limits_of(slo) if slo else {}
    requests = cut(load if isinstance(load, Requests) else load_requests(load, seed), first, speed)
    found = service(load_model(model), machine_of(machine), requests, Wanted(**options))
    return Serving(found, found.run(requests), limits)
