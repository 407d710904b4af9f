"""The dispatch mode that records: tensors of CPUs are real, those of the device have no memory.

A mode sees every operator below autograd: forward, backward and optimizer. Operators on tensors of the device run in
PyTorch's FakeTensorMode, which knows shapes and types only. All others run as they are: data loaders, tokenizers and
device meshes need real numbers.
"""

from __future__ import annotations

import math
from typing import Any

from armillary.base.errors import ArmillaryError
from armillary.capture import library as notes
from armillary.capture.communications import NAMESPACES, Groups, call_of
from armillary.capture.kinds import Kind, kept, kind_of, shaped
from armillary.capture.library import Library
from armillary.capture.log import (
    ALL,
    COMMUNICATION,
    HOST,
    JOIN,
    OPERATOR,
    RECORD,
    WAIT,
    Communication,
    Log,
    Place,
    Row,
)
from armillary.capture.memory import Memory
from armillary.capture.owners import owners_of
from armillary.capture.values import Values
from armillary.capture.where import Where
from armillary.convert.torch_import import torch_part
from armillary.trace.attention import Attention

STEP = ("rows", "communications", "kinds", "groups")
"""What of a log belongs to one step."""


class Recorder:
    """Records what a program does on the device, from the start of the process on.

    Attributes:
        log: The rank that it writes to.
        mode: To be entered around the program.
        values: Of tensors that have none.
        optimizers: Those that have stepped.
        paused: Whether operators are not the program's.
    """

    def __init__(self, torch: Any, log: Log, library: Library) -> None:
        self.torch, self.log, self._library = torch, log, library
        self.values = Values(torch)
        self.where = Where(torch)
        self.memory = Memory(torch, self._ended)
        self.mode = _mode(torch, self)
        self.optimizers: list[Any] = []
        self.paused = False
        self._groups = Groups(torch)
        self._group_numbers: dict[tuple[int, ...], int] = {}
        self._kind_numbers: dict[Any, int] = {}
        self._place_numbers: dict[Place, int] = {log.places[0]: 0}
        self._events: dict[int, int] = {}
        self._calls = 0
        # The last communication that wrote a storage, and the streams that wait for it already.
        self._pending: dict[int, int] = {}
        self._joined: set[tuple[int, int]] = set()
        self._works: dict[int, tuple[Any, int]] = {}

    def cut(self) -> dict[str, Any]:
        """Return what was recorded since the last cut, as attributes of a `Log`, and begin anew."""
        log = self.log
        found = {name: getattr(log, name) for name in STEP} | self._memory()
        log.rows, log.communications, log.kinds, log.groups = [], [], [], []
        self._kind_numbers.clear()
        self._group_numbers.clear()
        self._pending.clear()
        self._joined.clear()
        self._works.clear()
        self._calls = 0
        self.where.step()
        self.memory.restart()
        return found

    def finish(self, step: dict[str, Any] | None = None) -> Log:
        """Return the log, complete; `step` is an earlier cut that it holds instead of what came after it."""
        for name, value in (step or self._memory()).items():
            setattr(self.log, name, value)
        self.log.assumed = dict(self.values.assumed)
        return self.log

    def _memory(self) -> dict[str, Any]:
        owners = owners_of(self.torch, self.where.modules(), self.optimizers)
        return {"peak_bytes": self.memory.peak, "peak_by": self.memory.at_peak(owners)}

    def noted(self, kind: int, event: int, stream: int) -> None:
        """Take a note of streams and events, see `armillary.capture.library`."""
        if kind == notes.RECORD:
            self._row(RECORD, event, stream)
        elif kind == notes.WAIT:
            self._row(WAIT, event, stream)
        elif kind == notes.EVENT:
            self._row(HOST, event, 0)
        else:
            self._row(HOST, 0, stream if kind == notes.STREAM else ALL)

    def wait(self, work: Any) -> None:
        """Let the current stream wait for the communication of a `Work`."""
        found = self._works.get(id(work))
        if found is not None:
            self._row(JOIN, found[1], self._library.stream())

    def wait_for(self, tensor: Any) -> None:
        """Let the current stream wait for the communication that writes a tensor."""
        self._wait_for([tensor], self._library.stream())

    def operator(self, func: Any, args: Any, kwargs: Any, tensors: list[Any], out: Any) -> None:
        """Record an operator that has run on tensors of the device."""
        if self.paused:
            return
        torch, log, stream = self.torch, self.log, self._library.stream()
        self._calls += 1
        results = [each for each in torch.utils._pytree.tree_leaves(out) if isinstance(each, torch.Tensor)]
        for each in results:
            if each.device.type == "cuda":
                self.memory.see(each, self._made_at)
        if func.namespace in NAMESPACES:
            call = call_of(torch, self._groups, func, args, kwargs, out)
            if call is not None:
                self._wait_for(tensors, stream)
                own = call.own_stream and len(call.ranks) > 0
                number = len(log.communications)
                log.communications.append(
                    Communication(
                        call.type,
                        call.input,
                        call.output,
                        self._group(call.ranks),
                        own,
                        call.peer,
                        call.tag,
                        call.splits,
                    )
                )
                self._row(COMMUNICATION, number, stream)
                if own:
                    for each in call.tensors:
                        self._pending[each.untyped_storage()._cdata] = number
                    self._remember(out, number)
            return
        if not any(each.device.type == "cuda" for each in (*tensors, *results)):
            return
        number = self._kind(func, args, kwargs, tensors, out)
        if number >= 0:
            self._wait_for(tensors, stream)
            self._row(OPERATOR, number, stream)

    def higher(
        self, name: str, tensors: list[Any], out: Any, flops: int, shape: Attention | None = None
    ) -> None:
        """Record an operator that takes functions, such as flex attention, as one."""
        self._calls += 1
        results = [
            each for each in self.torch.utils._pytree.tree_leaves(out) if isinstance(each, self.torch.Tensor)
        ]
        sides = tuple(map(shaped, tensors)), tuple(map(shaped, results))
        size = sum(map(_bytes, (*tensors, *results)))
        kind = Kind(
            f"higher_order::{name}", *sides, flops, size, "attention" if flops else "", attention=shape
        )
        self._whole(kind)

    def _whole(self, kind: Kind) -> None:
        if kind not in self._kind_numbers:
            self._kind_numbers[kind] = len(self.log.kinds)
            self.log.kinds.append(kind)
        self._row(OPERATOR, self._kind_numbers[kind], self._library.stream())

    def launched(self, name: str, values: list[Any]) -> None:
        """Record a kernel of the program's own, which reads or writes the tensors among `values`."""
        tensors = [each for each in values if isinstance(each, self.torch.Tensor)]
        tensors = [getattr(each, "_local_tensor", each) for each in tensors]
        self._wait_for(tensors, self._library.stream())
        self._calls += 1
        self._whole(Kind(name, tuple(map(shaped, tensors)), (), 0, sum(map(_bytes, tensors)), ""))

    def read(self, tensor: Any) -> Any:
        """Return the value of a tensor that the program asks for; the host waits for the stream."""
        self._row(HOST, 0, self._library.stream())
        return self.values.of(tensor, self.where.line())

    def _made_at(self) -> str:
        place = self.where.now()
        return place.module or place.line

    def _ended(self, key: int) -> None:
        self._pending.pop(key, None)

    def _row(self, kind: int, what: int, stream: int) -> None:
        place = self.where.now() if kind in (OPERATOR, COMMUNICATION, HOST) else self.log.places[0]
        number = self._place_numbers.setdefault(place, len(self._place_numbers))
        if number == len(self.log.places):
            self.log.places.append(place)
        self.log.rows.append(Row(kind, what, stream, number, self._calls))
        self._calls = 0

    def _kind(self, func: Any, args: Any, kwargs: Any, tensors: list[Any], out: Any) -> int:
        torch = self.torch
        leaves = torch.utils._pytree.tree_leaves((args, kwargs, out))
        parts = [shaped(each) if isinstance(each, torch.Tensor) else _plain(each) for each in leaves]
        key = (func, *parts)
        if key not in self._kind_numbers:
            found = kind_of(torch, func, args, kwargs, out)
            if found is None:
                self._kind_numbers[key] = -1
            else:
                self._kind_numbers[key] = len(self.log.kinds)
                self.log.kinds.append(found)
        return self._kind_numbers[key]

    def _group(self, ranks: tuple[int, ...]) -> int:
        number = self._group_numbers.setdefault(ranks, len(self._group_numbers))
        if number == len(self.log.groups):
            self.log.groups.append(ranks)
        return number

    def _wait_for(self, tensors: list[Any], stream: int) -> None:
        """Let a stream wait for communications that write these tensors."""
        if not self._pending:
            return
        for each in tensors:
            number = self._pending.get(each.untyped_storage()._cdata, -1)
            if number >= 0 and (number, stream) not in self._joined:
                self._joined.add((number, stream))
                self._row(JOIN, number, stream)

    def _remember(self, out: Any, number: int) -> None:
        torch = self.torch
        for each in out if isinstance(out, tuple | list) else [out]:
            if isinstance(each, torch.ScriptObject):
                work = torch.distributed.Work.unbox(each)
                # Kept: PyTorch gives the same object to whoever waits for it.
                self._works[id(work)] = work, number


def _bytes(tensor: Any) -> int:
    return int(tensor.numel()) * int(tensor.element_size())


def _plain(value: Any) -> Any:
    """Return what tells two calls apart by an argument that is no tensor."""
    if value is None or isinstance(value, bool | int | str):
        return value
    return "nan" if isinstance(value, float) and math.isnan(value) else str(value)[:80]


def _mode(torch: Any, recorder: Recorder) -> Any:
    FakeTensor: Any = torch_part("_subclasses.fake_tensor").FakeTensor
    AsyncCollectiveTensor: Any = torch_part("distributed._functional_collectives").AsyncCollectiveTensor
    DTensor: Any = torch_part("distributed.tensor").DTensor
    TorchDispatchMode: Any = torch_part("utils._python_dispatch").TorchDispatchMode
    aten, functional, leaves = torch.ops.aten, torch.ops._c10d_functional, torch.utils._pytree.tree_leaves
    fake = torch_part("_subclasses.fake_tensor").FakeTensorMode(allow_non_fake_inputs=True)

    def on_device(device: Any) -> bool:
        return device is not None and torch.device(device).type == "cuda"

    class Mode(TorchDispatchMode):  # type: ignore[misc]
        supports_higher_order_operators = True

        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            kwargs = kwargs or {}
            if isinstance(func, torch._ops.HigherOrderOperator):
                return higher(func, args, kwargs)
            if func.namespace == "prim":
                return func(*args, **kwargs)
            # DTensor calls the operators on its local tensors, which come here, too; what a collective of functions
            # gives waits for it at its first use, and calls the operator after that.
            if any(issubclass(each, (DTensor, AsyncCollectiveTensor)) for each in types):
                return NotImplemented
            given = leaves((args, kwargs))
            tensors = [each for each in given if isinstance(each, torch.Tensor)]
            has = any(isinstance(each, FakeTensor) for each in tensors)
            device = kwargs.get("device")
            if not has and not on_device(device):
                return func(*args, **kwargs)
            if not has and torch._C._dispatch_has_kernel_for_dispatch_key(
                func.name(), "CompositeImplicitAutograd"
            ):
                # Under no_grad such operators come whole, with real tensors; their parts are recorded instead.
                with self:
                    found = func.decompose(*args, **kwargs)
                if found is not NotImplemented:
                    return found
            # Rules for tensors without memory make new tensors of these two, where PyTorch gives back its argument.
            if func is functional._wrap_tensor_autograd.default:
                return AsyncCollectiveTensor(args[0])
            if func is functional.wait_tensor.default:
                recorder.wait_for(args[0])
                return args[0]
            if func is aten._local_scalar_dense.default:
                return recorder.read(args[0])
            if func in (aten._pin_memory.default, aten.is_pinned.default):
                return args[0]
            if on_device(device) and torch.device(device).index is None:
                kwargs = {**kwargs, "device": torch.device("cuda", torch.accelerator.current_device_index())}
            with fake:
                if func is aten.bincount.default and len(args) > 2 and args[2]:
                    # As many counts as it names: no number is larger.
                    out = args[0].new_empty(args[2], dtype=torch.int64)
                else:
                    out = func(*args, **kwargs)
            fakes = [each for each in tensors if isinstance(each, FakeTensor)]
            recorder.values.note(func, args, kwargs, fakes, out)
            recorder.operator(func, args, kwargs, tensors, out)
            return out

    def higher(func: Any, args: Any, kwargs: Any) -> Any:
        tensors = [each for each in leaves((args, kwargs)) if isinstance(each, torch.Tensor)]
        with fake:
            out = func(*args, **kwargs)
        name, flops, shape = func.name(), 0, None
        if name in ("flex_attention", "flex_attention_backward"):
            back = name.endswith("backward")
            query, key, value = (tuple(map(int, each.shape)) for each in args[:3])
            shape = Attention(query[0], query[1], key[1], query[2], key[2], query[3], value[3], int(back))
            flops = (5 if back else 2) * query[0] * query[1] * query[2] * key[2] * (query[3] + value[3])
            masks = [each[-1] for each in args if isinstance(each, tuple) and each and callable(each[-1])]
            if any(looks_back(part) for mask in masks[-1:] for part in all_of(mask)):
                flops = kept(flops, shape)
        recorder.higher(name, tensors, out, flops, shape)
        return out

    def all_of(mask: Any) -> list[Any]:
        """Return the masks that `and_masks` has put together, and the mask itself."""
        held = [cell.cell_contents for cell in getattr(mask, "__closure__", None) or ()]
        parts = [each for value in held if isinstance(value, tuple) for each in value if callable(each)]
        return [*parts, mask]

    def looks_back(mask: Any) -> bool:
        """Return whether the first query does not see the second key, whatever documents and windows hide besides."""
        recorder.paused = True
        try:
            with mode:
                zero, one = (torch.full((), at, dtype=torch.int64, device="cuda") for at in (0, 1))
                seen = mask(zero, zero, zero, one)
        except Exception:  # a mask of the program's own, of tensors that are elsewhere
            return False
        finally:
            recorder.paused = False
        known = recorder.values.known.get(seen) if isinstance(seen, FakeTensor) else seen
        return known is not None and not bool(known)

    mode = Mode()
    return mode


def check_step(log: Log) -> None:
    """Refuse a step in which nothing ran.

    Raises:
        ArmillaryError: nothing was recorded.
    """
    if not any(row.kind in (OPERATOR, COMMUNICATION) for row in log.rows):
        raise ArmillaryError(
            f"{log.script}: rank {log.rank} ran nothing on the device; expected a program that moves its model to cuda"
        )
