"""Known sets of costs as data files, ``presets/NAME.yaml``, with a source for each number.

Their layout is that of platforms (`armillary.platform.files.preset`), with ``costs`` instead of ``platform``.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from armillary.base.errors import InputError, nearest
from armillary.explore.cost.schema import Costs
from armillary.platform.document import Source, is_there, read_document
from armillary.platform.files.native_errors import first_error
from armillary.platform.files.preset import Preset, read_numbers

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
    merged: dict[str, Any] = _merge(read_cost_preset(name).document.data["costs"], data)
    return merged


def load_costs(source: Source) -> Costs:
    """Read a file of costs, or a preset by its name; what such a file holds may be given as a mapping.

    Raises:
        InputError: it is neither, or malformed.
    """
    if isinstance(source, str) and source in cost_preset_names() and not is_there(source):
        return Costs(preset=source)
    if not isinstance(source, Mapping) and not Path(source).suffix and not is_there(source):
        names = cost_preset_names()
        raise InputError(
            f"{source}: neither a file nor a preset of costs{nearest(str(source), names)}; "
            f"presets: {', '.join(names)}"
        )
    document = read_document(source, "costs", "yaml")
    try:
        return Costs.model_validate(document.data)
    except ValidationError as error:
        raise first_error(document, error) from None


def unverified(costs: Costs) -> tuple[str, ...]:
    """Return the keys of a preset's numbers that no public source says and that are still as they were."""
    if costs.preset is None:
        return ()
    preset = read_cost_preset(costs.preset)
    original = Costs(preset=costs.preset)
    return tuple(
        number.key
        for number in preset.numbers
        if number.unverified and _value(costs, number.key) == _value(original, number.key)
    )


def _value(costs: Costs, key: str) -> object:
    value: Any = costs
    for part in key.split("."):
        value = value.get(part) if isinstance(value, Mapping) else getattr(value, part, None)
    return value


def _merge(base: Any, own: Any) -> Any:
    if not isinstance(base, dict) or not isinstance(own, dict):
        return own
    return base | {key: _merge(base[key], value) if key in base else value for key, value in own.items()}
