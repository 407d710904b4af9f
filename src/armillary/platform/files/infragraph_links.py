"""What links are capable of where an InfraGraph states none: by the name of the link.

NVIDIA's and AMD's blueprints name their links and give them no numbers. Every value that is taken from here is
printed above the result, so that nobody takes it for the file's.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from armillary.platform.files.infragraph_schema import BandwidthPart, LatencyPart, LinkPart


class LinkNumbers(NamedTuple):
    """Bandwidth in each direction, bytes per ns, and latency in ns; None: not known."""

    bandwidth: float | None
    latency: float | None


class Assumed(NamedTuple):
    """What a link is taken for: its numbers and what has them."""

    pattern: str
    bandwidth: float
    latency: float
    like: str
    shared: bool = False
    """Whether the bandwidth is of all links of that name that an NPU has."""


# Data sheets give bandwidths (both directions of NVLink together: half of it here); latencies of a hop are of the order
# that ping-pongs show and no more.
_TABLE = (
    Assumed(r"c2c", 450.0, 300.0, "an NVLink-C2C"),
    Assumed(r"nvlink|xpu_fabric|nvl", 450.0, 500.0, "the NVLink of an H100", shared=True),
    Assumed(r"infinity|xgmi", 64.0, 500.0, "an Infinity Fabric link of an MI300X"),
    Assumed(r"pcie.*6", 128.0, 300.0, "PCIe 6 x16"),
    Assumed(r"pcie.*4", 32.0, 300.0, "PCIe 4 x16"),
    Assumed(r"pcie.*3", 16.0, 300.0, "PCIe 3 x16"),
    Assumed(r"pcie", 64.0, 300.0, "PCIe 5 x16"),
    Assumed(r"upi|qpi|cpu_fabric|fabric$", 48.0, 300.0, "a UPI 2.0 link"),
    Assumed(r"ici", 100.0, 500.0, "a TPU's ICI link"),
    Assumed(r"serdes|electrical|binding|internal|^ic$", 50.0, 0.0, "400 Gb/s inside a device"),
)
_OTHER = Assumed("", 50.0, 600.0, "400 Gb/s Ethernet")
_SPEED = re.compile(
    r"(?:eth|ib|roce|ethernet|infiniband)[-_ ]?(\d{1,4})|(\d{1,4})[-_ ]?g(?:be|bps)?$", re.IGNORECASE
)
LANES = 16
"""Of a link whose transfers per second are stated: PCIe x16."""


def stated(link: LinkPart) -> tuple[LinkNumbers, str]:
    """Return what a link states, and what of it is an assumption: transfers per second are of 16 lanes."""
    physical = link.physical
    if physical is None:
        return LinkNumbers(None, None), ""
    rate, assumed = _bandwidth(physical.bandwidth, link.name)
    return LinkNumbers(rate, _latency(physical.latency)), assumed


def _bandwidth(given: BandwidthPart | None, name: str) -> tuple[float | None, str]:
    if given is None:
        return None, ""
    values = {
        "gigabits_per_second": 1 / 8,
        "gigabytes_per_second": 1.0,
        "gigatransfers_per_second": LANES / 8,
    }
    for key in [given.choice] if given.choice else values:
        value = getattr(given, key)
        # 0 is what a writer puts where it knows nothing.
        if value:
            rate = value * values[key]
            note = f"{value:g} GT/s of link '{name}' are of {LANES} lanes, {rate:g} GB/s"
            return rate, note if key == "gigatransfers_per_second" else ""
    return None, ""


def _latency(given: LatencyPart | None) -> float | None:
    if given is None:
        return None
    for key in [given.choice] if given.choice else ("ms", "us", "ns"):
        value: float | None = getattr(given, key)
        if value is not None:
            return value * {"ms": 1e6, "us": 1e3, "ns": 1.0}[key]
    return None


def assumed(name: str, found: LinkNumbers, each: int = 1) -> tuple[float, float, str]:
    """Return the bandwidth and latency of a link, and a sentence on what of both is assumed ("" for nothing).

    Args:
        name: Of the link.
        found: What is known of it.
        each: How many links of this name an NPU has.
    """
    if found.bandwidth is not None and found.latency is not None:
        return found.bandwidth, found.latency, ""
    like = next((known for known in _TABLE if re.search(known.pattern, name, re.IGNORECASE)), _OTHER)
    if like is _OTHER and (match := _SPEED.search(name)) and (speed := int(match[1] or match[2])):
        like = Assumed("", speed / 8, _OTHER.latency, f"{speed} Gb/s, by its name")
    if found.bandwidth is not None:
        text = f"link '{name}' states no latency: {like.latency:g} ns a hop, as of {like.like}"
        return found.bandwidth, like.latency, text
    rate = like.bandwidth / (each if like.shared else 1)
    whole = f", {like.bandwidth:g} GB/s of an NPU" if like.shared and each > 1 else ""
    latency = like.latency if found.latency is None else found.latency
    delay = f" and {like.latency:g} ns a hop" if found.latency is None else ""
    lacks = "bandwidth" if found.latency is not None else "numbers"
    return (
        rate,
        latency,
        f"link '{name}' states no {lacks}: {rate:g} GB/s each way{whole}{delay}, as of {like.like}",
    )
