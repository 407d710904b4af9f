"""The machine: networks, compute and memory, read from native study files or ASTRA-sim's own files."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from armillary.platform.astra_sim import read_platform
    from armillary.platform.model import Algorithm, Dimension, Platform, RemoteMemory, SharedBus, System
    from armillary.platform.native import Collective, Study, json_schema, load_platform, load_study
    from armillary.platform.show import describe, table

_MODULES = {
    "astra_sim": ("read_platform",),
    "model": ("Algorithm", "Dimension", "Platform", "RemoteMemory", "SharedBus", "System"),
    "native": ("Collective", "Study", "json_schema", "load_platform", "load_study"),
    "show": ("describe", "table"),
}

__all__ = [
    "Algorithm",
    "Collective",
    "Dimension",
    "Platform",
    "RemoteMemory",
    "SharedBus",
    "Study",
    "System",
    "describe",
    "json_schema",
    "load_platform",
    "load_study",
    "read_platform",
    "table",
]


def __getattr__(name: str) -> object:
    """Import a public name on first use, so that importing the package stays cheap."""
    for module, names in _MODULES.items():
        if name in names:
            return getattr(importlib.import_module(f"{__name__}.{module}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
