"""The machine: networks, compute and memory, read from native study files or ASTRA-sim's own files."""

from __future__ import annotations

from typing import TYPE_CHECKING

from armillary.base import lazy

if TYPE_CHECKING:
    from armillary.platform.collectives import Algorithm
    from armillary.platform.files.astra_sim import read_platform
    from armillary.platform.files.native import Collective, Study, json_schema, load_platform, load_study
    from armillary.platform.kernels import Compute, Jitter, Kernels, Override
    from armillary.platform.memory import LocalMemory, MemoryStage, RemoteMemory
    from armillary.platform.memory_model import MemoryModel
    from armillary.platform.model import AstraSimSystem, Collectives, Npu, Packets, Platform, SharedBus, ports
    from armillary.platform.network import Dimension, NetworkChoice, Port
    from armillary.platform.profiles import astra_sim_view, physical_view, with_roofline
    from armillary.platform.show import describe, table

__all__ = [
    "Algorithm",
    "AstraSimSystem",
    "Collective",
    "Collectives",
    "Compute",
    "Dimension",
    "Jitter",
    "Kernels",
    "LocalMemory",
    "MemoryModel",
    "MemoryStage",
    "NetworkChoice",
    "Npu",
    "Override",
    "Packets",
    "Platform",
    "Port",
    "RemoteMemory",
    "SharedBus",
    "Study",
    "astra_sim_view",
    "describe",
    "json_schema",
    "load_platform",
    "load_study",
    "physical_view",
    "ports",
    "read_platform",
    "table",
    "with_roofline",
]
__getattr__ = lazy(
    __name__,
    {
        ".collectives": ("Algorithm",),
        ".files.astra_sim": ("read_platform",),
        ".files.native": ("Collective", "Study", "json_schema", "load_platform", "load_study"),
        ".kernels": ("Compute", "Jitter", "Kernels", "Override"),
        ".memory": ("LocalMemory", "MemoryStage", "RemoteMemory"),
        ".memory_model": ("MemoryModel",),
        ".model": ("AstraSimSystem", "Collectives", "Npu", "Packets", "Platform", "SharedBus", "ports"),
        ".network": ("Dimension", "NetworkChoice", "Port"),
        ".profiles": ("astra_sim_view", "physical_view", "with_roofline"),
        ".show": ("describe", "table"),
    },
)
