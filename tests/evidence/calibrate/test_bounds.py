"""No fitted constant stands on a bound of its fit unless its file says why."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from armillary.base.units import parse_percent
from armillary.compute import gpu
from armillary.evidence.calibrate import attention, gemm
from armillary.evidence.calibrate.recipes import RECIPES
from armillary.evidence.calibrate.training import RANGES
from armillary.explore.training.fitted import FOLDER

DEVICES = sorted((Path(gpu.__file__).parent / "devices").glob("*.yaml"))
NEAR = 0.01
"""Of the bound, or of the width of the constant where the bound is 0."""


def at(value: float, bound: float, width: float) -> bool:
    return abs(value - bound) <= NEAR * (abs(bound) or width)


def software_at_bounds(document: dict[str, Any], names: tuple[str, ...]) -> Iterator[str]:
    """Yield what stands on a bound and is not explained, of all rows and of each fold."""
    for device, part in (document.get("devices") or {}).items():
        said = part.get("bounds") or {}
        for fold, values in {"": part["constants"], **(part.get("folds") or {})}.items():
            for name, value in values.items():
                known = RANGES[name]
                bounds = (known.least, known.most)
                if name in names and name not in said and any(at(value, b, known.width) for b in bounds):
                    yield f"{device} {fold} {name}: {value}"


def device_at_bounds(document: dict[str, Any]) -> Iterator[str]:
    fitted = document.get("fitted") or {}
    for kind, module in (("gemm", gemm), ("attention", attention)):
        for precision, values in (document.get(kind) or {}).items():
            source = fitted.get(f"{kind} {precision}") or {}
            if "script" not in source:
                continue
            for name, text in values.items():
                bounds = [module.HIGHEST.get(name), getattr(module, "LOWEST", {}).get(name)]
                value = parse_percent(text) if isinstance(text, str) and "%" in text else text
                if not isinstance(value, int | float) or name in (source.get("bounds") or {}):
                    continue
                if any(bound is not None and at(value, bound, 1.0) for bound in bounds):
                    yield f"{kind} {precision} {name}: {text}"


@pytest.mark.parametrize("name", sorted(RECIPES))
def test_no_constant_of_a_software_stands_on_a_bound(name: str) -> None:
    document = yaml.safe_load((FOLDER / f"{name}.yaml").read_text())
    assert not list(software_at_bounds(document, RECIPES[name].names))


@pytest.mark.parametrize("path", DEVICES, ids=lambda path: path.stem)
def test_no_constant_of_a_device_stands_on_a_bound(path: Path) -> None:
    assert not list(device_at_bounds(yaml.safe_load(path.read_text())))


@pytest.mark.parametrize("value", [0.0, 0.004, 0.995, 1.0])
def test_a_constant_on_a_bound_is_found(value: float) -> None:
    part = {"constants": {"communication_inside": 0.5}, "folds": {"half 0": {"communication_inside": value}}}
    found = {"devices": {"all": part}}
    assert list(software_at_bounds(found, ("communication_inside",)))
    part["bounds"] = {"communication_inside": "why"}
    assert not list(software_at_bounds(found, ("communication_inside",)))


def test_a_constant_of_a_device_on_a_bound_is_found() -> None:
    fitted = {"gemm bf16": {"script": "gemm.py"}}
    found = {"gemm": {"bf16": {"rate": "99.5 %", "sharp": 12}}, "fitted": fitted}
    assert len(list(device_at_bounds(found))) == 2
    fitted["gemm bf16"]["bounds"] = {"rate": "why", "sharp": "why"}
    assert not list(device_at_bounds(found))
