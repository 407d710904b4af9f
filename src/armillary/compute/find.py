"""From the name of a compute model to the model: built in, or of another package."""

from __future__ import annotations

from functools import partial

from armillary.base.errors import ConsentError, InputError
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
    return COMPUTE_MODELS.load_class(name, MODELS, ComputeModel)


def make_model(platform: Platform) -> ComputeModel:
    """Return the model that a platform names.

    Raises:
        ConsentError: it is a program that nobody has allowed.
        InputError: there is none, or its options are wrong.
    """
    chosen = platform.compute
    try:
        kind = find_model(chosen.model)
        return COMPUTE_MODELS.create(
            chosen.model,
            partial(kind.create, chosen.options, Device.of(platform), chosen.folder),
            ComputeModel,
        )
    except (ConsentError, InputError) as error:
        raise type(error)(f"{chosen.source}: {error}" if chosen.source else str(error)) from error
