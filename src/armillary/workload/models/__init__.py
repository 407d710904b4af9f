"""Models as data: descriptions, exact parameter counts, operations."""

from armillary.workload.models.counts import Parameters, parameters
from armillary.workload.models.hugging_face import from_hugging_face
from armillary.workload.models.operations import Flops, default_sequence, flops, layer_flops
from armillary.workload.models.read import (
    load_model,
    model_file,
    model_of,
    preset_named,
    preset_names,
    read_model,
)
from armillary.workload.models.schema import Decoder, Dlrm, Gnmt, Model, Resnet, Stack, Vit
from armillary.workload.models.summary import facts, unknown_rows

__all__ = [
    "Decoder",
    "Dlrm",
    "Flops",
    "Gnmt",
    "Model",
    "Parameters",
    "Resnet",
    "Stack",
    "Vit",
    "default_sequence",
    "facts",
    "flops",
    "from_hugging_face",
    "layer_flops",
    "load_model",
    "model_file",
    "model_of",
    "parameters",
    "preset_named",
    "preset_names",
    "read_model",
    "unknown_rows",
]
