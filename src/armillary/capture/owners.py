"""Whose the tensors are that outlive a step: weights, their gradients, and what an optimizer keeps of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from armillary.capture.memory import Owner


def owners_of(torch: Any, modules: Iterable[tuple[str, Any]], optimizers: Iterable[Any]) -> dict[int, Owner]:
    """Return, by the key of its storage, what a tensor is and the module that it belongs to.

    Args:
        torch: PyTorch.
        modules: Those that were called, with their names; the first name of a module counts.
        optimizers: Those that have stepped.
    """
    found: dict[int, Owner] = {}
    of_parameter: dict[int, str] = {}
    for name, module in modules:
        for what, held in (("weights", module._parameters), ("tensors", module._buffers)):
            for tensor in held.values():
                if tensor is None:
                    continue
                of_parameter.setdefault(id(tensor), name)
                for key in _keys(torch, tensor):
                    found.setdefault(key, (what, name))
                for key in _keys(torch, getattr(tensor, "grad", None) if what == "weights" else None):
                    found.setdefault(key, ("gradients", name))
    for optimizer in optimizers:
        for parameter, state in optimizer.state.items():
            name = of_parameter.get(id(parameter), "")
            for value in state.values() if isinstance(state, dict) else ():
                for key in _keys(torch, value):
                    found.setdefault(key, ("optimizer", name))
    return found


def _keys(torch: Any, value: Any) -> Iterator[int]:
    if isinstance(value, torch.Tensor):
        # The part of a DTensor that this rank has.
        local = getattr(value, "_local_tensor", value)
        yield local.untyped_storage()._cdata
