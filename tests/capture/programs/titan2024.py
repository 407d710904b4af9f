"""Configurations near those with which torchtitan's tables of December 2024 were measured, for torchtitan 0.3.

Since then torchtitan computes the loss of parts of the sequences one after the other, which saves memory, compiles the
loss, too, makes one projection of those for queries, keys and values, and has embedding and head in groups of FSDP of
their own. It has flex attention instead of SDPA, which does the same work. Its checkpoints no longer stop
early. PyTorch has got one kernel for `rms_norm`, which was several operators then.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor
from torchao.float8 import Float8LinearConfig
from torchao.float8.float8_linear import Float8Linear
from torchao.float8.float8_scaling_utils import NoopFwToFloat8BwDynamic, hp_tensor_to_float8_dynamic
from torchao.float8.float8_training_tensor import GemmInputRole
from torchao.float8.fsdp_utils import WeightWithDynamicFloat8CastTensor
from torchtitan.components.loss import CrossEntropyLoss
from torchtitan.components.quantization import Float8LinearConverter, float8
from torchtitan.distributed import activation_checkpoint, fsdp
from torchtitan.models import llama3
from torchtitan.models.common.config_utils import decoder_vocab_size
from torchtitan.models.llama3 import config_registry
from torchtitan.protocols.module import Module
from torchtitan.trainer import Trainer

_layers, _shard = llama3._build_llama3_layers, fsdp.fully_shard
_checkpoint = activation_checkpoint.ptd_checkpoint_wrapper
_linear = float8.Float8Linear.__init__
_redistribute_inputs, _redistribute_outputs = Module._redistribute_inputs, Module._redistribute_outputs


def _norm(x: Tensor, shape: Sequence[int], weight: Tensor | None = None, eps: float | None = None) -> Tensor:
    wide = x.float()
    root = wide.pow(2).mean([-1 - at for at in range(len(shape))], keepdim=True).add_(eps or 1e-6).rsqrt()
    found = (wide * root).type_as(x)
    return found if weight is None else found * weight


def _sharded(module: Any, **options: Any) -> Any:
    # What is not sharded here is in the group of the whole model.
    alone = isinstance(module, list | torch.nn.Embedding)
    return module if alone else _shard(module, **options)


def _quantised(module: Any) -> Any:
    """Return a linear layer in float8 within a module, None if there is none."""
    return next((each for each in module.modules() if isinstance(each, Float8Linear)), None)


def _inputs(self: Module, dims: Any, args: Any, given: Any) -> Any:
    """Quantise what tensor parallelism gathers before it does."""
    within = None if isinstance(self, Float8Linear) else _quantised(self)
    if within is not None and self._sharding_config.in_dst_shardings and isinstance(args[0], DTensor):
        config = within.config.cast_config_input
        first = hp_tensor_to_float8_dynamic(
            args[0], config.target_dtype, within.linear_mm_config, gemm_input_role=GemmInputRole.INPUT
        )
        args = (first, *args[1:])
    return _redistribute_inputs(self, dims, args, given)


def _outputs(self: Module, dims: Any, found: Any) -> Any:
    """Quantise the gradients that it gathers in the backward pass."""
    found = _redistribute_outputs(self, dims, found)
    gathers = dims.tp_enabled and self._sharding_config.out_dst_shardings
    if not isinstance(self, Float8Linear) or not gathers:
        return found
    return NoopFwToFloat8BwDynamic.apply(
        found, self.linear_mm_config, self.config.cast_config_grad_output.target_dtype
    )


def _wrapped(self: Any, config: Any) -> None:
    """Quantise shards of weights before they are gathered, as torchao does where it converts a module itself."""
    _linear(self, config)
    own = self.config.cast_config_weight.target_dtype
    held = WeightWithDynamicFloat8CastTensor(self.weight, self.linear_mm_config, own)
    self.weight = torch.nn.Parameter(held, requires_grad=self.weight.requires_grad)


class _OneScale(Float8LinearConverter):
    """The recipe of 2024, of one scale for each tensor, and shards that are quantised before they are gathered."""

    @dataclass(kw_only=True, slots=True)
    class Config(Float8LinearConverter.Config):
        """Its configuration, which is that of today's recipes."""

    def __init__(self, config: Float8LinearConverter.Config) -> None:
        super().__init__(config)
        self.torchao_config = Float8LinearConfig(enable_fsdp_float8_all_gather=True)


def _of(config: Trainer.Config, size: str, *, float8: bool = False) -> Trainer.Config:
    converters = [_OneScale.Config(filter_fqns=["lm_head"], model_compile_enabled=True)]
    config.model_spec = llama3.model_registry(size, converters=converters if float8 else [])
    config.loss = CrossEntropyLoss.Config(global_vocab_size=decoder_vocab_size(config.model_spec))
    config.compile.components = ["model"]
    return config


def _as_then() -> None:
    torch.nn.functional.rms_norm, fsdp.fully_shard = _norm, _sharded
    activation_checkpoint.ptd_checkpoint_wrapper = lambda module, **said: _checkpoint(
        module, **{**said, "early_stop": True}
    )
    float8.Float8Linear.__init__ = _wrapped
    Module._redistribute_inputs, Module._redistribute_outputs = _inputs, _outputs
    llama3._build_llama3_layers = lambda **said: _layers(**{**said, "fuse_qkv": False})


def llama3_8b() -> Trainer.Config:
    """Return the registered configuration, as it was."""
    _as_then()
    return _of(config_registry.llama3_8b(), "8B")


def llama3_8b_float8() -> Trainer.Config:
    """Return the same in float8, which only the head is not."""
    _as_then()
    return _of(config_registry.llama3_8b(), "8B", float8=True)


def llama3_70b() -> Trainer.Config:
    """Return the registered configuration, as it was."""
    _as_then()
    return _of(config_registry.llama3_70b(), "70B")


def llama3_70b_float8() -> Trainer.Config:
    """Return the same in float8, which only the head is not."""
    _as_then()
    return _of(config_registry.llama3_70b(), "70B", float8=True)


def llama3_405b() -> Trainer.Config:
    """Return the registered configuration of today with the loss of then, without float8 and asynchronous TP."""
    config = _of(config_registry.llama3_405b(), "405B")
    config.compile.enable_async_tensor_parallel = False
    return config


def llama3_405b_then() -> Trainer.Config:
    """Return it as it was without optimisations: neither compiled, nor in float8, nor with asynchronous TP."""
    _as_then()
    config = llama3_405b()
    config.compile.enable = False
    return config
