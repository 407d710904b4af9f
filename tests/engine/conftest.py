"""A small machine to run traces on, in ASTRA-sim's own terms."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from armillary.platform.files.astra_sim import read_platform
from armillary.platform.model import Platform

KINDS = ("all-reduce", "all-gather", "reduce-scatter", "all-to-all")


@pytest.fixture(scope="session")
def machine() -> Callable[..., Platform]:
    """Make a platform; each dimension runs `algorithms`, keywords go into the system file (``_`` for ``-``)."""

    def make(
        sizes: Sequence[int] = (4,),
        topology: str = "Ring",
        algorithm: str = "ring",
        memory: dict[str, Any] | None = None,
        groups: dict[str, list[int]] | None = None,
        cli: Sequence[str] = (),
        bandwidth: float = 50.0,
        latency: float = 500.0,
        **system: Any,
    ) -> Platform:
        n = len(sizes)
        network = {
            "topology": [topology] * n,
            "npus_count": list(sizes),
            "bandwidth": [bandwidth] * n,
            "latency": [latency] * n,
        }
        keys = {
            "scheduling-policy": "FIFO",
            "collective-optimization": "baseline",
            "endpoint-delay": 10,
            "active-chunks-per-dimension": 1,
            "preferred-dataset-splits": 4,
            "local-mem-bw": 50,
            **{f"{kind}-implementation": [algorithm] * n for kind in KINDS},
            **{name.replace("_", "-"): value for name, value in system.items()},
        }
        return read_platform(keys, network, memory, groups, cli)

    return make
