"""Configurations near those with which torchtitan's tables of December 2024 were measured, for torchtitan 0.3.

Since then torchtitan computes the loss of parts of the sequences one after the other, which saves memory, compiles the
loss, too, and makes one projection of those for queries, keys and values. It has flex attention instead of SDPA, which
does the same work. PyTorch has got one kernel for `rms_norm`, which was several operators then.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torchtitan.components.loss import CrossEntropyLoss
from torchtitan.models import llama3
from torchtitan.models.common.config_utils import decoder_vocab_size
from torchtitan.models.llama3 import config_registry
from torchtitan.trainer import Trainer

_layers = llama3._build_llama3_layers


def _norm(x: Tensor, shape: Sequence[int], weight: Tensor | None = None, eps: float | None = None) -> Tensor:
    wide = x.float()
    root = wide.pow(2).mean([-1 - at for at in range(len(shape))], keepdim=True).add_(eps or 1e-6).rsqrt()
    found = (wide * root).type_as(x)
    return found if weight is None else found * weight


torch.nn.functional.rms_norm = _norm
llama3._build_llama3_layers = lambda **said: _layers(**{**said, "fuse_qkv": False})


def _of(config: Trainer.Config, size: str) -> Trainer.Config:
    config.model_spec = llama3.model_registry(size)
    config.compile.components = ["model"]
    config.loss = CrossEntropyLoss.Config(global_vocab_size=decoder_vocab_size(config.model_spec))
    return config


def llama3_8b() -> Trainer.Config:
    """Return the registered configuration, as it was."""
    return _of(config_registry.llama3_8b(), "8B")


def llama3_70b() -> Trainer.Config:
    """Return the registered configuration, as it was."""
    return _of(config_registry.llama3_70b(), "70B")


def llama3_405b() -> Trainer.Config:
    """Return the registered configuration, as it was, without float8 and without asynchronous TP."""
    config = _of(config_registry.llama3_405b(), "405B")
    config.compile.enable_async_tensor_parallel = False
    return config
