"""From the name of a compute model to the model: built in, or of another package."""

from __future__ import annotations

from armillary.base.errors import InputError
from armillary.base.hints import show
from armillary.compute.model import ComputeModel, Device
from armillary.platform.kernels import COMPUTE_MODELS
from armillary.platform.model import Platform

MODELS = {
    "gpu": "armillary.compute.gpu.model:GpuModel",
    "roofline": "armillary.compute.roofline:Roofline",
    "table": "armillary.compute.table:Table",
    "tiled": "armillary.compute.tiled:Tiled",
    "systolic": "armillary.compute.systolic:Systolic",
    "subprocess": "armillary.compute.program:Program",
}
"""The class of each that is built in."""


def find_model(name: str) -> type[ComputeModel]:
    """Return the class of a model.

    Raises:
        InputError: there is none of that name, or it cannot be loaded or is no `ComputeModel`.
    """
    # A package may register anything under the entry point.
    found = COMPUTE_MODELS.load(name, MODELS)
    if not (isinstance(found, type) and issubclass(found, ComputeModel)):
        raise InputError(f"compute model '{name}' is {found!r}, expected a subclass of ComputeModel")
    return found


def make_model(platform: Platform) -> ComputeModel:
    """Return the model that a platform names.

    Raises:
        InputError: there is none, or its options are wrong.
    """
    chosen = platform.compute
    try:
        kind = find_model(chosen.model)
        # `create` is code of another package: whatever it raises becomes an InputError that names the model.
        with COMPUTE_MODELS.guard(chosen.model):
            model = kind.create(chosen.options, Device.of(platform), chosen.folder)
        if not isinstance(model, ComputeModel):
            raise InputError(
                f"compute model '{chosen.model}': create returned {show(model)}, expected a ComputeModel"
            )
        return model
    except InputError as error:
        raise InputError(f"{chosen.source}: {error}" if chosen.source else str(error)) from error
