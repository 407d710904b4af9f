"""Configurations near those with which torchtitan's tables of December 2024 were measured, for torchtitan 0.3.

Since then torchtitan computes the loss of parts of the sequences one after the other, which saves memory, compiles the
loss, too, makes one projection of those for queries, keys and values, and has embedding and head in groups of FSDP of
their own. It has flex attention instead of SDPA, which does the same work. PyTorch has got one kernel for `rms_norm`,
which was several operators then.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torchtitan.components.loss import CrossEntropyLoss
from torchtitan.distributed import fsdp
from torchtitan.models import llama3
from torchtitan.models.common.config_utils import decoder_vocab_size
from torchtitan.models.llama3 import config_registry
from torchtitan.trainer import Trainer

_layers, _shard = llama3._build_llama3_layers, fsdp.fully_shard


def _norm(x: Tensor, shape: Sequence[int], weight: Tensor | None = None, eps: float | None = None) -> Tensor:
    wide = x.float()
    root = wide.pow(2).mean([-1 - at for at in range(len(shape))], keepdim=True).add_(eps or 1e-6).rsqrt()
    found = (wide * root).type_as(x)
    return found if weight is None else found * weight


def _sharded(module: Any, **options: Any) -> Any:
    # What is not sharded here is in the group of the whole model.
    alone = isinstance(module, list | torch.nn.Embedding)
    return module if alone else _shard(module, **options)


def _of(config: Trainer.Config, size: str) -> Trainer.Config:
    config.model_spec = llama3.model_registry(size)
    config.loss = CrossEntropyLoss.Config(global_vocab_size=decoder_vocab_size(config.model_spec))
    return config


def _as_then() -> None:
    torch.nn.functional.rms_norm, fsdp.fully_shard = _norm, _sharded
    llama3._build_llama3_layers = lambda **said: _layers(**{**said, "fuse_qkv": False})


def llama3_8b() -> Trainer.Config:
    """Return the registered configuration, as it was."""
    _as_then()
    config = _of(config_registry.llama3_8b(), "8B")
    config.compile.components = ["model"]
    return config


def llama3_405b() -> Trainer.Config:
    """Return the registered configuration of today with the loss of then, without float8 and asynchronous TP."""
    config = _of(config_registry.llama3_405b(), "405B")
    config.compile.enable_async_tensor_parallel = False
    return config
