"""Memory and disk of the host behind the KV cache of the devices: how many blocks they keep, and times to get them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from armillary.base.errors import InputError
from armillary.base.units import format_bandwidth, format_bytes, parse_bandwidth, parse_bytes
from armillary.serving.requests import Requests
from armillary.serving.service import MOST_BLOCKS, Service
from armillary.serving.transfer import cache_bytes
from armillary.workload.models.schema import Decoder


@dataclass(frozen=True)
class Tier:
    """A tier as it is named and assumed.

    Attributes:
        key: Of its size; that of its rate is longer by ``-rate``.
        name: What it is.
        rate: Bytes a ns, if nobody says.
        like: Where that is from.
        to: What gets so much.
    """

    key: str
    name: str
    rate: float
    like: str
    to: str


TIERS = (
    Tier("kv-host", "the host's memory", 50.0, "PCIe 5 x16, 63 GB/s one way", "to each device"),
    Tier("kv-ssd", "its disk", 10.0, "two NVMe drives", "to each replica"),
)


def with_tiers(found: Service, requests: Requests, sizes: tuple[str, str], rates: tuple[str, str]) -> Service:
    """Return a service whose hosts keep blocks that are taken on the devices.

    Args:
        found: The service; of two pools, that which computes prompts.
        requests: A load, for its mean length.
        sizes: Of memory and disk for a replica, e.g. ``200GiB``; "": none.
        rates: Of transfers from there, e.g. ``50GB/s``; "": what is assumed.

    Raises:
        InputError: a value is wrong, holds no block, or has no effect.
    """
    engine, slots, took = found.engine, [0, 0], [0, 0]
    assert isinstance(found.model, Decoder)
    mean = max(1, int((requests.prompt + requests.output).mean()))
    tokens = int(cache_bytes(found.model, found.plan, np.array([mean]))[0])
    block = max(1, -(-tokens * engine.block // mean))
    kept = []
    for at, tier in enumerate(TIERS):
        size, rate = (
            _read(tier.key, sizes[at], parse_bytes),
            _read(f"{tier.key}-rate", rates[at], parse_bandwidth),
        )
        if rates[at] and not rate > 0:
            raise InputError(f"{tier.key}-rate {rates[at]}: expected a rate above 0")
        if not sizes[at]:
            if rates[at]:
                raise InputError(f"{tier.key}-rate {rates[at]}: expected it with {tier.key} only")
            continue
        if not engine.cached:
            raise InputError(
                f"{tier.key} {sizes[at]}: no blocks are kept on the devices, expected it with cached only"
            )
        slots[at] = int(size) // (engine.ranks * block)
        if not 1 <= slots[at] <= MOST_BLOCKS:
            raise InputError(
                f"{tier.key} {sizes[at]}: {slots[at]:,} blocks of {format_bytes(block)} for each rank, expected 1 to "
                f"{MOST_BLOCKS:,}"
            )
        speed = rate or tier.rate
        # Each device gets what it holds of a block; ranks divide what the disk gives.
        parts = found.plan.parallel.tp if at == 0 else 1 / engine.ranks
        took[at] = max(1, round(block * 1000 / (parts * speed)))
        why = "" if rate else f", as over {tier.like}" if at == 0 else f", as of {tier.like}"
        kept.append(f"{tier.name} {slots[at]:,}, back at {format_bandwidth(speed)} {tier.to}{why}")
    notes = [
        f"blocks of {format_bytes(block)} that are taken on the devices are kept"
        f"{' for each rank' * (engine.ranks > 1)}: {'; '.join(kept)}; they are written beside the steps, and a step "
        "waits until what its prompts find there is on the devices",
        "no run with blocks on the host was measured, so means have no interval",
    ]
    if not requests.alike:
        notes.append(
            "no requests of the load begin alike: only those that lose their blocks find any on the host"
        )
    return replace(
        found, engine=replace(engine, slots=(slots[0], slots[1]), load_ps=(took[0], took[1])), measured=False,
        assumptions=(*found.assumptions, *notes),
    )  # fmt: skip


def _read(name: str, text: str, parse: Callable[[object], float]) -> float:
    try:
        return parse(text) if text else 0
    except (ValueError, OverflowError) as error:
        raise InputError(f"{name} {text}: {error}") from None
