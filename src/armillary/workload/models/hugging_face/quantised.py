"""How a checkpoint is quantised: the ``quantization_config`` of its ``config.json``, in the words of a model file."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

BLOCK = [128, 128]
_OF_BITS = {16: "bf16", 8: "fp8", 4: "fp4"}
"""Bits of a stored weight -> what holds as many: int8 and int4 move the bytes of fp8 and fp4."""


def published(config: Mapping[str, Any], experts: bool) -> dict[str, Any]:
    """Return `armillary.workload.models.decoder_parts.Published` of a ``quantization_config``.

    Keys that are missing or of a kind that is not known leave all but the method out, which then is not modelled.

    Args:
        config: The mapping; what it says of layers that are left out is ignored, as heads and norms usually are.
        experts: Whether the model has some.
    """
    method = str(config.get("quant_method") or config.get("quant_algo") or "")[:60]
    reader = {
        "fp8": _fp8,
        "fbgemm_fp8": _fp8,
        "mxfp4": _mxfp4,
        "gptq": _weights_only,
        "awq": _weights_only,
        "compressed-tensors": _compressed,
        "modelopt": _modelopt,
        "modelopt_fp4": _modelopt,
    }.get(method)
    found = reader(config, experts) if reader else {}
    return {"method": method, **found}


def _fp8(config: Mapping[str, Any], experts: bool) -> dict[str, Any]:
    """DeepSeek's scales of blocks, or scales of tensors or rows, which kernels take alike."""
    size = config.get("weight_block_size")
    if size not in (None, BLOCK):
        return {}
    return {"gemms": "fp8", "scales": "block" if size else "tensor"}


def _mxfp4(config: Mapping[str, Any], experts: bool) -> dict[str, Any]:
    return {"gemms": "bf16", "experts" if experts else "weights": "mxfp4" if experts else "fp4"}


def _weights_only(config: Mapping[str, Any], experts: bool) -> dict[str, Any]:
    """GPTQ and AWQ: kernels widen stored weights, and GEMMs compute in bf16."""
    return _stored(config.get("bits", config.get("w_bit")), experts)


def _stored(bits: object, experts: bool) -> dict[str, Any]:
    precision = _OF_BITS.get(bits) if isinstance(bits, int) else None
    if precision is None or precision == "bf16":
        return {}
    if experts:
        return {"gemms": "bf16", "experts": "int4" if precision == "fp4" else precision}
    return {"gemms": "bf16", "weights": precision}


def _compressed(config: Mapping[str, Any], experts: bool) -> dict[str, Any]:
    """The groups of llm-compressor, of which the first is that of the projections."""
    groups = config.get("config_groups")
    first = next(iter(groups.values()), None) if isinstance(groups, Mapping) else None
    weights = first.get("weights") if isinstance(first, Mapping) else None
    if not isinstance(first, Mapping) or not isinstance(weights, Mapping):
        return {}
    inputs, bits = first.get("input_activations"), weights.get("num_bits")
    if not isinstance(inputs, Mapping):
        return _stored(bits, experts)
    same = bits == inputs.get("num_bits")
    if not same or weights.get("type") != "float" or bits not in (8, 4):
        return {}
    if bits == 4:
        return _nvfp4(experts)
    return {"gemms": "fp8", "scales": "block" if weights.get("strategy") == "block" else "tensor"}


def _modelopt(config: Mapping[str, Any], experts: bool) -> dict[str, Any]:
    algorithm, cache = config.get("quant_algo"), config.get("kv_cache_quant_algo")
    if algorithm == "NVFP4":
        found = _nvfp4(experts)
    elif algorithm == "FP8":
        found = {"gemms": "fp8", "scales": "tensor"}
    else:
        return {}
    return {**found, "cache": "fp8"} if cache == "FP8" else found


def _nvfp4(experts: bool) -> dict[str, Any]:
    """Return NVFP4's keys: of a mixture of experts the rest stays as it was, as in NVIDIA's checkpoints."""
    return {"gemms": "bf16", "experts": "fp4"} if experts else {"gemms": "fp4"}
