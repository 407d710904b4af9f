"""The machine: networks, compute and memory, read from native study files or ASTRA-sim's own files."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from armillary.platform.algorithms import Algorithm
    from armillary.platform.files.astra_sim import read_platform
    from armillary.platform.files.native import Collective, Study, json_schema, load_platform, load_study
    from armillary.platform.kernels import Jitter, KernelModel, Kernels, Override
    from armillary.platform.memory import LocalMemory, MemoryStage, RemoteMemory
    from armillary.platform.memory_model import MemoryModel
    from armillary.platform.model import Packets, Physical, Platform, SharedBus, System, ports
    from armillary.platform.network import Dimension, Port
    from armillary.platform.network_models import NetworkChoice
    from armillary.platform.profiles import astra_sim_view, check_physical, with_roofline
    from armillary.platform.show import describe, table

_MODULES = {
    "algorithms": ("Algorithm",),
    "files.astra_sim": ("read_platform",),
    "files.native": ("Collective", "Study", "json_schema", "load_platform", "load_study"),
    "kernels": ("Jitter", "KernelModel", "Kernels", "Override"),
    "memory": ("LocalMemory", "MemoryStage", "RemoteMemory"),
    "model": ("Packets", "Physical", "Platform", "SharedBus", "System", "ports"),
    "memory_model": ("MemoryModel",),
    "network": ("Dimension", "Port"),
    "network_models": ("NetworkChoice",),
    "profiles": ("astra_sim_view", "check_physical", "with_roofline"),
    "show": ("describe", "table"),
}

__all__ = [
    "Algorithm",
    "Collective",
    "Dimension",
    "Jitter",
    "KernelModel",
    "Kernels",
    "LocalMemory",
    "MemoryModel",
    "MemoryStage",
    "NetworkChoice",
    "Override",
    "Packets",
    "Physical",
    "Platform",
    "Port",
    "RemoteMemory",
    "SharedBus",
    "Study",
    "System",
    "astra_sim_view",
    "check_physical",
    "describe",
    "json_schema",
    "load_platform",
    "load_study",
    "ports",
    "read_platform",
    "table",
    "with_roofline",
]


def __getattr__(name: str) -> object:
    """Import a public name on first use, so that importing the package stays cheap."""
    for module, names in _MODULES.items():
        if name in names:
            return getattr(importlib.import_module(f"{__name__}.{module}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
