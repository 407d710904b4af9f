"""Import PyTorch, an optional dependency, only where it is used."""

from __future__ import annotations

import importlib
from typing import Any

from armillary.base.errors import InputError

OLDEST = (2, 4)


def import_torch(purpose: str) -> Any:
    """Return the module ``torch``.

    Args:
        purpose: what needs it, for the message.

    Raises:
        InputError: it is not installed, or is older than 2.4.
    """
    try:
        torch = importlib.import_module("torch")
    except ImportError as error:
        raise InputError(f"{purpose} needs PyTorch ({error}), expected `pip install torch`") from error
    if tuple(int(part) for part in torch.__version__.split(".")[:2]) < OLDEST:
        raise InputError(
            f"{purpose}: PyTorch is {torch.__version__}, expected {'.'.join(map(str, OLDEST))} or newer"
        )
    return torch


def torch_part(name: str) -> Any:
    """Return a module of PyTorch that ``import torch`` does not load.

    Args:
        name: such as ``distributed.tensor``.

    Raises:
        ImportError: this PyTorch has none of this name.
    """
    return importlib.import_module(f"torch.{name}")
