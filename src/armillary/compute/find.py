"""From the name of a compute model to the model: built in, or of another package."""

from __future__ import annotations

import importlib
from importlib.metadata import entry_points

from armillary.base.errors import InputError, nearest, one_of
from armillary.compute.model import ComputeModel, Device
from armillary.platform.model import Platform

GROUP = "armillary.compute"
"""Entry points: the name of a model, and its class."""
MODELS = {
    "gpu": "armillary.compute.gpu.model:GpuModel",
    "roofline": "armillary.compute.roofline:Roofline",
    "table": "armillary.compute.table:Table",
    "tiled": "armillary.compute.tiled:Tiled",
    "systolic": "armillary.compute.systolic:Systolic",
    "subprocess": "armillary.compute.program:Program",
}
"""Those that are built in."""


def find_model(name: str) -> type[ComputeModel]:
    """Return the class of a model.

    Raises:
        InputError: there is none of that name, or it cannot be loaded or is no `ComputeModel`.
    """
    if name in MODELS:
        module, _, attribute = MODELS[name].partition(":")
        found = getattr(importlib.import_module(module), attribute)
    else:
        points = {point.name: point for point in entry_points(group=GROUP)}
        if name not in points:
            known = [*MODELS, *points]
            raise InputError(f"no compute model '{name}', expected {one_of(known)}{nearest(name, known)}")
        try:
            found = points[name].load()
        except (ImportError, AttributeError) as error:
            raise InputError(f"compute model '{name}' cannot be loaded: {error}") from error
    if not (isinstance(found, type) and issubclass(found, ComputeModel)):
        raise InputError(f"compute model '{name}' is {found!r}, expected a subclass of ComputeModel")
    return found


def make_model(platform: Platform) -> ComputeModel:
    """Return the model that a platform names.

    Raises:
        InputError: there is none, or its options are wrong.
    """
    chosen = platform.kernel_model
    try:
        return find_model(chosen.name).create(chosen.options, Device.of(platform), chosen.folder)
    except InputError as error:
        raise InputError(f"{chosen.source}: {error}" if chosen.source else str(error)) from error
