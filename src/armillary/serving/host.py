"""Memory of the host behind the KV cache of the devices: how many blocks it keeps, and how long one takes back."""

from __future__ import annotations

from dataclasses import replace
from typing import TypeVar

import numpy as np

from armillary.base.errors import InputError
from armillary.base.units import format_bandwidth, format_bytes, parse_bandwidth, parse_bytes
from armillary.serving.requests import Requests
from armillary.serving.service import MOST_BLOCKS, Service
from armillary.serving.transfer import cache_bytes
from armillary.workload.models.schema import Decoder

RATE = 50.0
"""Bytes a ns: what copies reach of PCIe 5 x16, 63 GB/s one way."""
S = TypeVar("S", bound=Service)


def with_host(found: S, requests: Requests, size: str, rate: str) -> S:
    """Return a service whose hosts keep blocks that are taken on the devices.

    Args:
        found: The service; of two pools, that which computes prompts.
        requests: A load, for its mean length.
        size: Of the memory for a replica, e.g. ``200GiB``.
        rate: Of transfers to each device, e.g. ``50GB/s``; "": what is assumed.

    Raises:
        InputError: a value is wrong, holds no block, or has no effect.
    """
    for name, text, parse in (("kv-host", size, parse_bytes), ("kv-host-rate", rate, parse_bandwidth)):
        try:
            if text:
                parse(text)
        except (ValueError, OverflowError) as error:
            raise InputError(f"{name} {text}: {error}") from None
    speed = parse_bandwidth(rate) if rate else RATE
    if not speed > 0:
        raise InputError(f"kv-host-rate {rate}: expected a rate above 0")
    engine = found.engine
    if not engine.cached:
        raise InputError(f"kv-host {size}: no blocks are kept on the devices, expected it with cached only")
    assert isinstance(found.model, Decoder)
    mean = max(1, int((requests.prompt + requests.output).mean()))
    tokens = int(cache_bytes(found.model, found.plan, np.array([mean]))[0])
    block = -(-tokens * engine.block // mean)
    blocks = parse_bytes(size) // (engine.ranks * block)
    if not 1 <= blocks <= MOST_BLOCKS:
        raise InputError(
            f"kv-host {size}: {blocks:,} blocks of {format_bytes(block)} for each rank, expected 1 to {MOST_BLOCKS:,}"
        )
    each = max(1, -(-block * 1000 // max(1, round(found.plan.parallel.tp * speed))))
    notes = [
        f"the host keeps {blocks:,} blocks of {format_bytes(block)} that are taken on the devices"
        f"{' of each rank' * (engine.ranks > 1)}, and are written beside the steps; a step waits until "
        "what its prompts find there is on the devices, at "
        f"{format_bandwidth(speed)} to each{'' if rate else ', as over PCIe 5 x16: the machine does not say'}",
        "no run with blocks on the host was measured, so means have no interval",
    ]
    if not requests.alike:
        notes.append(
            "no requests of the load begin alike: only those that lose their blocks find any on the host"
        )
    return replace(
        found, engine=replace(engine, host=blocks, load_ps=each), measured=False,
        assumptions=(*found.assumptions, *notes),
    )  # fmt: skip
