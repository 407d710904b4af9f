"""Notes, inside each call of a collective or message, the process group that it is for.

PyTorch's traces say it for NCCL, RCCL and XCCL, not for what runs on CPU tensors (gloo, MPI). All calls, those of the C++ reducer of DistributedDataParallel included, go through
operators of the namespace c10d; for these a kernel takes the place of PyTorch's that opens and closes a range with
the group's name and then calls PyTorch's. That takes some 20 us of the calling thread; calls on GPU tensors stay as they are.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

from armillary.convert.pytorch.communication import GROUP_NOTE

_KEYS = ("CPU", "SparseCPU")


class GroupNotes:
    """The kernels that note; `remove` puts PyTorch's back."""

    def __init__(self, torch: Any) -> None:
        """Register them; `available` says whether this PyTorch can."""
        self._library: Any = None
        try:
            self._register(torch)
        except (AttributeError, RuntimeError, TypeError, ImportError):  # of a version that lacks what this needs
            self.remove()

    @property
    def available(self) -> bool:
        """Whether groups are noted."""
        return self._library is not None

    def remove(self) -> None:
        """Let PyTorch's kernels be called again."""
        if self._library is not None:
            self._library._destroy()
            self._library = None

    def _register(self, torch: Any) -> None:
        distributed = torch.distributed
        if not distributed.is_available():
            return
        note = torch._C._profiler._RecordFunctionFast
        unbox = distributed.ProcessGroup.unbox
        get_kernel = torch.library.get_kernel
        self._library = torch.library.Library("c10d", "IMPL")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that a kernel is overridden, which is what is wanted
            for name in sorted(torch._C._dispatch_get_all_op_names()):
                space, _, short = name.partition("::")
                if space != "c10d" or "." in short:
                    continue
                operator = getattr(torch.ops.c10d, short).default
                place = _group_argument(operator)
                for key in _KEYS if place >= 0 else ():
                    if torch._C._dispatch_has_kernel_for_dispatch_key(name, key):
                        kernel = _noting(get_kernel(operator, key), place, unbox, note)
                        self._library.impl(short, kernel, key, with_keyset=True, allow_override=True)


def _group_argument(operator: Any) -> int:
    """Return the place of the process group among the arguments of an operator, -1 for none."""
    arguments = operator._schema.arguments
    return next((at for at, argument in enumerate(arguments) if "ProcessGroup" in str(argument.type)), -1)


def _noting(
    kernel: Any, place: int, unbox: Callable[[Any], Any], note: Callable[[str], Any]
) -> Callable[..., Any]:
    def noting(keys: Any, *arguments: Any, **named: Any) -> Any:
        with note(GROUP_NOTE + str(unbox(arguments[place]).group_name)):
            pass
        return kernel.call_boxed(keys, *arguments, **named)

    return noting
