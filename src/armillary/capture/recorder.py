"""What a program does on the device, row by row: operators, communications, streams, and what the host waits for."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from armillary.base.errors import InputError
from armillary.capture import library as notes
from armillary.capture.communications import NAMESPACES, Groups, call_of
from armillary.capture.device import FakeDevice
from armillary.capture.flows import Flow
from armillary.capture.fusion import fuse
from armillary.capture.kinds import Kind, bytes_held, bytes_of, described, kind_of, plain, shaped
from armillary.capture.leaves import leaves_of
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
    renumbered,
)
from armillary.capture.memory import Memory
from armillary.capture.mode import mode_of
from armillary.capture.owners import owners_of
from armillary.capture.values import EVEN, Values
from armillary.capture.where import Where
from armillary.trace.attention import Attention

STEP = ("rows", "communications", "kinds", "groups", "host_bytes")
"""What of a log belongs to one step."""

MOST_ROWS = 2_000_000
"""Rows without a step before a program is taken for an endless loop: 40 times those of a step of Llama-3 405B with 32
microbatches, and 0.6 GB."""
COPIES = ("_to_copy", "copy_")
"""Operators that move tensors between the host and the device."""


class Recorder:
    """Records what a program does on the device, from the start of the process on.

    Attributes:
        log: The rank that it writes to.
        mode: To be entered around the program.
        values: Of tensors that have none.
        optimizers: Those that have stepped.
        paused: Whether operators are not the program's.
        calls: Operators that the host called since the last row.
        flows: What rows read and write, where a part of the program is compiled.
    """

    def __init__(self, torch: Any, log: Log, library: Library, device: FakeDevice) -> None:
        self.torch, self.log, self.library = torch, log, library
        self._rows: list[Row] = []
        log.rows = self._rows
        self._leaves = leaves_of(torch)
        self.values = Values(torch)
        self.where = Where(torch)
        self.memory = Memory(torch, self._ended, library.stream, device)
        self.mode = mode_of(torch, self)
        self.optimizers: list[Any] = []
        self.paused = False
        self._groups = Groups(torch)
        self._group_numbers: dict[tuple[int, ...], int] = {}
        self._kind_numbers: dict[Any, int] = {}
        self._kind_of_key: dict[Any, int] = {}
        # By identity: blocks name the same kinds again and again, and hashing one takes longer than the rest.
        self._issued: dict[int, tuple[Any, int]] = {}
        self._place_numbers: dict[Place, int] = {log.places[0]: 0}
        self._device: int | None = None
        self._place: Place | None = None
        self.calls = 0
        self.flows: list[Flow] = []
        # The last communication that wrote a storage, and the streams that wait for it already.
        self._pending: dict[int, int] = {}
        self._joined: set[tuple[int, int]] = set()
        self._works: dict[int, tuple[Any, int, tuple[Any, ...]]] = {}

    def cut(self) -> dict[str, Any]:
        """Return what was recorded since the last cut, as attributes of a `Log`, and begin anew."""
        log = self.log
        found = self._step()
        self._rows = []
        log.rows, log.communications, log.kinds, log.groups = self._rows, [], [], []
        log.host_bytes = 0
        self._kind_numbers.clear()
        self._kind_of_key.clear()
        self._issued.clear()
        self._group_numbers.clear()
        self._pending.clear()
        self._joined.clear()
        self._works.clear()
        self.calls = 0
        self.flows = []
        self.where.step()
        self.memory.restart()
        return found

    def finish(self, step: dict[str, Any] | None = None) -> Log:
        """Return the log, complete; `step` is an earlier cut that it holds instead of what came after it."""
        for name, value in (step or self._step()).items():
            setattr(self.log, name, value)
        self.log.rows = renumbered(self.log.rows)
        self.log.compiled = self.where.compiles
        self.log.assumed = dict(self.values.assumed)
        self.log.notes += self.memory.notes()
        if self.values.even:
            self.log.note(EVEN)
        return self.log

    def forget(self, first: int, calls: int) -> None:
        """Forget the rows from number `first` on, and the communications from number `calls` on."""
        del self._rows[first:], self.log.communications[calls:]
        self._pending = {key: number for key, number in self._pending.items() if number < calls}
        self._joined = {each for each in self._joined if each[0] < calls}

    def issued(self, first: int, calls: int) -> list[tuple[Row, Any]]:
        """Return the rows from number `first` on, and what each is of, whatever numbers it has: see `issue`.

        Args:
            first: Number of a row.
            calls: Communications before it, from which those that are waited for are counted.
        """
        log, found = self.log, []
        for row in self._rows[first:]:
            what: Any = row.what
            if row.kind == OPERATOR:
                what = log.kinds[row.what]
            elif row.kind == COMMUNICATION:
                made = log.communications[row.what]
                what = replace(made, group=0), log.groups[made.group]
            elif row.kind == JOIN:
                what = row.what - calls
            found.append((row._replace(what=0), what))
        return found

    def issue(self, rows: Iterable[tuple[Row, Any]]) -> None:
        """Record rows that `issued` has returned once more."""
        log, calls = self.log, len(self.log.communications)
        numbers, first = self._issued, self.calls
        self.calls = 0
        for row, what in rows:
            if row.kind == OPERATOR:
                found = numbers.get(id(what))
                if found is None:
                    found = numbers[id(what)] = what, self._kind_number(what)
                number = found[1]
            elif row.kind == COMMUNICATION:
                number = len(log.communications)
                log.communications.append(replace(what[0], group=self._group(what[1])))
            else:
                number = what + calls * (row.kind == JOIN)
            if row.kind == JOIN:
                self._joined.add((number, row.stream))
            self._rows.append(Row(row.kind, number, row.stream, row.place, row.calls + first))
            first = 0
        self.calls += first

    def _step(self) -> dict[str, Any]:
        """Return what is of this step, with kernels fused where the program is compiled."""
        found = {name: getattr(self.log, name) for name in STEP}
        owners = owners_of(self.torch, self.where.modules(), self.optimizers)
        gone, kept, early = set[int](), dict[int, int](), dict[int, int]()
        if self.flows:
            rows, kinds, gone, kept, early = fuse(
                found["rows"], found["kinds"], self.flows, self.memory.alive(), found["communications"]
            )
            found |= {"rows": rows, "kinds": kinds}
        peak, reserved = self.memory.at_peak(owners, gone, kept, early)
        held = {"peak_bytes": sum(size for _, _, size in peak), "peak_by": peak, "reserved_bytes": reserved}
        return found | held

    def _flow(self, func: Any, args: Any, tensors: list[Any], results: list[Any]) -> None:
        """Note what the last row reads and writes, where a part of the program is compiled."""
        if not self.where.compiles:
            return
        written = list(results)
        schema = getattr(func, "_schema", None)
        for argument, value in zip(schema.arguments if schema else (), args, strict=False):
            if argument.alias_info is not None and argument.alias_info.is_write:
                written += self._tensors(value)
        reads, writes = (
            {number: bytes_held(each) for each in side if (number := self.memory.number(each))}
            for side in (tensors, written)
        )
        row, region = len(self._rows) - 1, self.where.region
        again = region > 0 and self.log.places[self._rows[row].place].backward
        self.flows.append(Flow(row, region, reads, writes, again, self.memory.mark()))

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
            self._row(JOIN, found[1], self.library.stream())

    def results(self, work: Any) -> list[Any]:
        """Return the tensors that the communication of a `Work` writes."""
        return list(self._works.get(id(work), (None, 0, ()))[2])

    def written_by(self, tensor: Any) -> int:
        """Return the number of the last communication that writes a tensor on a stream of its own; -1: none does."""
        return self._pending.get(tensor.untyped_storage()._cdata, -1)

    def wait_for(self, tensor: Any) -> None:
        """Let the current stream wait for the communication that writes a tensor."""
        self._wait_for([tensor], self.library.stream())

    def operator(
        self, func: Any, args: Any, kwargs: Any, tensors: list[Any], out: Any, key: Any = None
    ) -> None:
        """Record an operator that has run on tensors of the device; calls of an equal `key` are of one kind."""
        if self.paused:
            return
        torch, log, stream = self.torch, self.log, self.library.stream()
        self.calls += 1
        self._place = None
        results = self._tensors(out)
        for each in results:
            if each.device.type == "cuda":
                self.memory.see(each, self._made_at)
        if func.namespace in NAMESPACES:
            call = call_of(torch, self._groups, func, args, kwargs, out)
            if call is not None:
                self._wait_for(tensors, stream)
                own = call.own_stream and len(call.ranks) > 0
                number = len(log.communications)
                group = self._group(call.ranks)
                log.communications.append(
                    Communication(
                        call.type, call.input, call.output, group, own, call.peer, call.tag, call.splits
                    )
                )
                self._row(COMMUNICATION, number, stream)
                self._flow(func, args, tensors, results)
                if own:
                    for each in call.tensors:
                        self._pending[each.untyped_storage()._cdata] = number
                    self._remember(out, number, call.tensors)
            return
        places = {each.device.type for each in (*tensors, *results)}
        if "cuda" not in places:
            return
        if "cpu" in places and func._overloadpacket.__name__ in COPIES:
            log.host_bytes += max(map(bytes_of, results))
        number = self._kind_of_key.get(key, -2) if key is not None else -2
        if number < -1:
            number = self._kind_of_key[key] = self._kind(func, args, kwargs, tensors, out)
        if number >= 0:
            self._wait_for(tensors, stream)
            self._row(OPERATOR, number, stream)
            self._flow(func, args, tensors, results)
            if log.kinds[number].family == "matmul":
                self._one_device(results)
                self.memory.library(stream, log.places[self._rows[-1].place].backward)
        elif torch.is_grad_enabled():
            self._here()  # the gradient of a view may be a kernel, as that of a split, and is from the same place

    def _one_device(self, results: list[Any]) -> None:
        """Refuse a process that computes on several devices: all of it would be taken for the time of one."""
        index = results[0].device.index
        self._device = index if self._device is None else self._device
        if index != self._device:
            raise InputError(
                f"{self.where.line()}: one process computes on cuda:{self._device} and cuda:{index}; expected a "
                "process for each GPU, as torchrun starts them: a rank is one GPU"
            )

    def higher(
        self, name: str, tensors: list[Any], out: Any, flops: int, shape: Attention | None = None
    ) -> None:
        """Record an operator that takes functions, such as flex attention, as one."""
        self.calls += 1
        results = self._tensors(out)
        sides = tuple(map(shaped, tensors)), tuple(map(shaped, results))
        size = sum(map(bytes_of, (*tensors, *results)))
        kind = Kind(
            f"higher_order::{name}", *sides, flops, size, "attention" if flops else "", attention=shape
        )
        self._whole(kind)
        self._flow(None, (), tensors, results)

    def _whole(self, kind: Kind) -> None:
        self._place = None
        self._row(OPERATOR, self._kind_number(kind), self.library.stream())

    def _kind_number(self, kind: Kind) -> int:
        if kind not in self._kind_numbers:
            self._kind_numbers[kind] = len(self.log.kinds)
            self.log.kinds.append(kind)
        return self._kind_numbers[kind]

    def launched(self, name: str, values: list[Any]) -> None:
        """Record a kernel of the program's own, which reads or writes the tensors among `values`."""
        tensors = [each for each in values if isinstance(each, self.torch.Tensor)]
        tensors = [getattr(each, "_local_tensor", each) for each in tensors]
        self._wait_for(tensors, self.library.stream())
        self.calls += 1
        self._whole(Kind(name, tuple(map(shaped, tensors)), (), 0, sum(map(bytes_of, tensors)), ""))

    def read(self, tensor: Any) -> Any:
        """Return the value of a tensor that the program asks for; the host waits for the stream."""
        self.waited()
        return self.values.of(tensor, self.where.line())

    def waited(self) -> None:
        """Note that the host waits for the stream."""
        if not self.paused:
            self._row(HOST, 0, self.library.stream())

    def _tensors(self, value: Any) -> list[Any]:
        return [each for each in self._leaves(value) if isinstance(each, self.torch.Tensor)]

    def _made_at(self) -> str:
        place = self._here()
        return place.module or place.line

    def _here(self) -> Place:
        """Return where the operator is from that runs now: it is asked for each of its results, and for its row."""
        if self._place is None:
            self._place = self.where.now()
        return self._place

    def _ended(self, key: int) -> None:
        self._pending.pop(key, None)

    def _row(self, kind: int, what: int, stream: int) -> None:
        if kind in (OPERATOR, COMMUNICATION):
            place = self._here()
        else:
            place = self.where.now() if kind == HOST else self.log.places[0]
        number = self._place_numbers.setdefault(place, len(self._place_numbers))
        if number == len(self.log.places):
            self.log.places.append(place)
        self._rows.append(Row(kind, what, stream, number, self.calls))
        self.calls = 0
        if len(self._rows) > MOST_ROWS:
            raise InputError(
                f"{self.where.line()}: {MOST_ROWS:,} operators without a step of an optimizer; expected one of "
                "torch.optim, or a script that ends"
            )

    def _kind(self, func: Any, args: Any, kwargs: Any, tensors: list[Any], out: Any) -> int:
        torch = self.torch
        leaves = self._leaves((args, kwargs, out))
        parts = [described(each) if isinstance(each, torch.Tensor) else plain(each) for each in leaves]
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

    def _remember(self, out: Any, number: int, tensors: tuple[Any, ...]) -> None:
        torch = self.torch
        for each in out if isinstance(out, tuple | list) else [out]:
            if isinstance(each, torch.ScriptObject):
                work = torch.distributed.Work.unbox(each)
                # Kept: PyTorch gives the same object to whoever waits for it.
                self._works[id(work)] = work, number, tensors
