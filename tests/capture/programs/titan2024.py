"""Configurations near those with which torchtitan's tables of December 2024 were measured, for torchtitan 0.3.

Since then torchtitan computes the loss of parts of the sequences one after the other, which saves memory. It also fuses
the projections of attention, and has flex attention instead of SDPA; both do the same work.
"""

from __future__ import annotations

from torchtitan.components.loss import CrossEntropyLoss
from torchtitan.models.common.config_utils import decoder_vocab_size
from torchtitan.models.llama3 import config_registry
from torchtitan.trainer import Trainer


def llama3_8b() -> Trainer.Config:
    """Return the registered configuration, with the loss of whole sequences."""
    config = config_registry.llama3_8b()
    config.loss = CrossEntropyLoss.Config(global_vocab_size=decoder_vocab_size(config.model_spec))
    return config


def llama3_405b() -> Trainer.Config:
    """Return the registered configuration without float8, which needs torchao, and without asynchronous TP."""
    config = config_registry.llama3_405b()
    config.model_spec = config_registry.model_registry("405B")
    config.compile.enable_async_tensor_parallel = False
    config.loss = CrossEntropyLoss.Config(global_vocab_size=decoder_vocab_size(config.model_spec))
    return config


def llama3_70b() -> Trainer.Config:
    """Return the registered configuration, with the loss of whole sequences."""
    config = config_registry.llama3_70b()
    config.loss = CrossEntropyLoss.Config(global_vocab_size=decoder_vocab_size(config.model_spec))
    return config
