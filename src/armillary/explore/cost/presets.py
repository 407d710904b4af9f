"""Known sets of costs as data files, ``presets/NAME.yaml``, with a source for each number.

Their layout is that of platforms (`armillary.platform.files.preset`), with ``costs`` instead of ``platform``.
"""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

from armillary.base.errors import nearest
from armillary.platform.files.preset import Preset, merged, read_numbers

# Shipped with the package, as data files.
_FOLDER = Path(__file__).parent / "presets"


@functools.cache
def cost_preset_names() -> tuple[str, ...]:
    """Return the names of all presets."""
    return tuple(sorted(path.stem for path in _FOLDER.glob("*.yaml")))


@functools.cache
def read_cost_preset(name: str) -> Preset:
    """Return a preset that `cost_preset_names` lists."""
    return read_numbers(_FOLDER / f"{name}.yaml", "costs")


def expanded(data: dict[str, Any]) -> dict[str, Any]:
    """Return what a mapping with the key ``preset`` stands for; the key stays, to say so.

    Raises:
        ValueError: There is no such preset.
    """
    name = data["preset"]
    if name not in cost_preset_names():
        names = cost_preset_names()
        raise ValueError(f"preset: got '{name}', expected {', '.join(names)}{nearest(name, names)}")
    # The keys of the file win over the preset.
    found: dict[str, Any] = merged(read_cost_preset(name).document.data["costs"], data)
    return found
