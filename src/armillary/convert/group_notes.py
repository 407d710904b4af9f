"""Notes, inside each call of a collective or message, the process group that it is for.

PyTorch's traces name it for NCCL, RCCL and XCCL, but not for gloo and MPI. All calls, those of the C++ reducer of
DistributedDataParallel included, go through operators of the namespace c10d. These get a kernel for the dispatch key
BackendSelect, which every call passes last before the kernel of its device, whatever autograd or inference mode do.
The kernel opens and closes a range with the group's name and calls the next kernel; that takes 60 to 125 us of the
calling thread, measured on a busy machine.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from armillary.convert.pytorch.communication import GROUP_NOTE


class GroupNotes:
    """The registered kernels; `remove` restores PyTorch's own."""

    def __init__(self, torch: Any) -> None:
        """Register the kernels; `available` tells whether this PyTorch allows it."""
        self._library: Any = None
        try:
            self._register(torch)
        except (
            AttributeError,
            RuntimeError,
            TypeError,
            ImportError,
        ):  # of a version that lacks what this needs
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
        # With GPUs the communication runs on NCCL or RCCL, whose traces name the group.
        if not distributed.is_available() or torch.cuda.is_available():
            return
        note = torch._C._profiler._RecordFunctionFast
        unbox = distributed.ProcessGroup.unbox
        select = torch._C.DispatchKey.BackendSelect
        self._library = torch.library.Library("c10d", "IMPL")
        for name in sorted(torch._C._dispatch_get_all_op_names()):
            space, _, short = name.partition("::")
            # A dot separates the name of an overload.
            if space == "c10d" and "." not in short:
                operator = getattr(torch.ops.c10d, short).default
                place = _group_argument(operator)
                if place >= 0:
                    kernel = _noting(operator, place, unbox, note, select)
                    # The kernel needs the call's dispatch keys to remove its own from them, or it would call itself.
                    self._library.impl(short, kernel, "BackendSelect", with_keyset=True)


def _group_argument(operator: Any) -> int:
    """Return the place of the process group among the arguments of an operator, -1 for none."""
    arguments = operator._schema.arguments
    return next((at for at, argument in enumerate(arguments) if "ProcessGroup" in str(argument.type)), -1)


def _noting(
    operator: Any, place: int, unbox: Callable[[Any], Any], note: Callable[[str], Any], select: Any
) -> Callable[..., Any]:
    def noting(keys: Any, *arguments: Any, **named: Any) -> Any:
        with note(GROUP_NOTE + str(unbox(arguments[place]).group_name)):
            pass
        # Without the GIL, unlike DispatchKeySet's redispatch: a thread of gloo may need it to free a tensor, while it
        # holds the lock that this call is going to take.
        return operator._op_dk(keys.remove(select).highestPriorityTypeId(), *arguments, **named)

    return noting
