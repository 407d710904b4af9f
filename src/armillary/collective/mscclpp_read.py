"""Read an MSCCL++ execution plan, and refuse what is wrong in it by line."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from armillary.base.counts import check_count
from armillary.base.document import Document, read_document
from armillary.base.hints import KeyPath, key_text, misspelt
from armillary.collective.mscclpp_plan import (
    COLLECTIVES,
    MOST_OPS,
    MOVES,
    OPERATIONS,
    OTHERS,
    PUTS,
    SIGNALS,
    SUMS,
    SWITCHED,
    WAITS,
    ExecutionPlan,
    Op,
    Ref,
    Span,
)


def read_plan(path: str | Path | dict[str, Any]) -> ExecutionPlan:
    """Return the plan of a file, or of what such a file holds.

    Raises:
        InputError: It cannot be read, or something in it is wrong; names the line.
    """
    return _Reader(read_document(path, "MSCCL++ plan", "json")).plan()


_TOP = (
    "name",
    "collective",
    "protocol",
    "inplace",
    "reuse_resources",
    "gpus",
    "num_threads_per_block",
    "use_double_scratch_buffer",
    "buffer_alignment",
    "min_message_size",
    "max_message_size",
)


_KEYS = {
    "gpu": ("id", "input_chunks", "output_chunks", "scratch_chunks", "threadblocks", "channels", "remote_buffers",
            "semaphores"),
    "thread block": ("id", "ops", "channels", "remote_buffer_refs"),
    "operation": ("name", "src_buff", "dst_buff", "channel_ids", "channel_type", "tbg_info", "reduce_op", "barrier_id",
                  "num_threadblocks", "semaphore_ids", "ops", "iter_context"),
    "buffer": ("type", "buffer_id", "index", "size", "switch_channel_id"),
}  # fmt: skip
"""What MSCCL++ writes into each; others may be of a newer one, which only a warning says."""


class _Reader:
    def __init__(self, document: Document) -> None:
        self.document, self.data, self.count = document, document.data, 0
        self.warnings: list[str] = []
        self.operator: tuple[str, KeyPath] | None = None
        self.unknown: set[tuple[str, str]] = set()

    def plan(self) -> ExecutionPlan:
        document, data = self.document, self.data
        document.check_keys(_TOP)
        word = document.choice(
            ("collective",), document.require("collective", "what it computes"), (*COLLECTIVES, *OTHERS)
        )
        protocol = document.choice(("protocol",), data.get("protocol", "Simple"), ("Simple", "LL"))
        gpus = self._list(data, (), "gpus")
        n = len(gpus)
        if not 2 <= n <= 4096:
            document.reject(("gpus",), n, "2 to 4096 of them")
        numbered: list[tuple[dict[str, Any], KeyPath]] = [({}, ())] * n
        for at, gpu in enumerate(gpus):
            place: KeyPath = ("gpus", at)
            number = document.whole((*place, "id"), gpu.get("id"), 0, n - 1)
            if numbered[number][0]:
                raise document.error((*place, "id"), f"gpu {number} is there twice")
            numbered[number] = (gpu, place)
        chunks = tuple(
            tuple(
                self._number(gpu, place, f"{name}_chunks", 0, 1 << 20)
                for name in ("input", "output", "scratch")
            )
            for gpu, place in numbered
        )
        if not (chunks[0][0] or chunks[0][1]):
            raise document.error(
                ("gpus",), "gpu 0 has no chunks, expected input_chunks or output_chunks of 1 or more"
            )
        check_count(sum(map(sum, chunks)), MOST_OPS, f"{document.name}: chunks", "fewer")
        self.chunks, self.numbered = chunks, numbered
        blocks = tuple(self._gpu(number) for number in range(n))
        semaphores = tuple(
            tuple(self._number(each, (*place, "semaphores"), "init_value", 0, 1 << 20)
                  for each in self._list(gpu, place, "semaphores", ()))
            for gpu, place in numbered
        )  # fmt: skip
        alignment = self._number(data, (), "buffer_alignment", 1, 1 << 20, 16)
        name = data.get("name", "plan")
        if not isinstance(name, str):
            document.reject(("name",), name, "text")
        in_place = data.get("inplace", False)
        if not isinstance(in_place, bool):
            document.reject(("inplace",), in_place, "true or false")
        least = self._number(data, (), "min_message_size", 0, 2**64 - 1, 0)
        most = self._number(data, (), "max_message_size", 0, 2**64 - 1, 2**64 - 1)
        return ExecutionPlan(
            name, COLLECTIVES.get(word, word), protocol, n, in_place,
            tuple((one[0], one[1], one[2]) for one in chunks), blocks, semaphores, alignment, document,
            tuple(dict.fromkeys(self.warnings)), (least, most),
        )  # fmt: skip

    def _list(
        self, data: dict[str, Any], place: KeyPath, key: str, default: Any = None
    ) -> list[dict[str, Any]]:
        found = data.get(key, default)
        if not isinstance(found, list | tuple) or not all(isinstance(each, dict) for each in found):
            self.document.reject((*place, key), found, "a list of mappings")
        return list(found)

    def _number(
        self, data: dict[str, Any], place: KeyPath, key: str, low: int, high: int, default: int | None = None
    ) -> int:
        return self.document.whole((*place, key), data.get(key, default), low, high)

    def _numbers(self, data: dict[str, Any], place: KeyPath, key: str, below: int) -> list[int]:
        found = data.get(key, [])
        if not isinstance(found, list):
            self.document.reject((*place, key), found, "a list of numbers")
        return [self.document.whole((*place, key, at), each, 0, below - 1) for at, each in enumerate(found)]

    def _check_keys(self, data: dict[str, Any], place: KeyPath, kind: str) -> None:
        """Refuse keys that are a typo away from one that is read, and warn of all others, once each."""
        for key in data:
            if key in _KEYS[kind] or (kind, key) in self.unknown:
                continue
            if hint := misspelt(key, _KEYS[kind]):
                raise self.document.error((*place, key), f"unknown key{hint}")
            self.unknown.add((kind, key))
            self.warnings.append(str(self.document.error((*place, key), f"key of no known {kind}, not read")))

    def _warn_twice(self, ops: list[Op], op: Op) -> None:
        """Warn of a put that stands twice in a thread block with nothing between that could change what it moves."""
        for other in reversed(ops):
            if other.name not in (*PUTS, *SIGNALS, "flush"):
                return
            if op == replace(other, place=op.place):
                before = key_text(other.place)
                self.warnings.append(
                    str(
                        self.document.error(
                            op.place, f"moves what {before} has moved to the same place: it moves twice"
                        )
                    )
                )
                return

    def _gpu(self, number: int) -> tuple[tuple[Op, ...], ...]:
        gpu, place = self.numbered[number]
        self._check_keys(gpu, place, "gpu")
        channels: dict[str, list[Ref]] = {"memory": [], "port": []}
        seen: dict[tuple[str, int], int] = {}
        for at, each in enumerate(self._list(gpu, place, "channels", ())):
            where = (*place, "channels", at)
            kind = self.document.choice(
                (*where, "channel_type"), each.get("channel_type"), ("memory", "port", "switch")
            )
            if kind == "switch":
                # NVLS: what uses them is refused where it stands.
                continue
            for peer in self._numbers(each, where, "connected_to", len(self.numbered)):
                index = seen.get((kind, peer), 0)
                seen[kind, peer] = index + 1
                channels[kind].append(Ref(number, peer, kind, index))
        remote: list[tuple[int, str]] = []
        for at, each in enumerate(self._list(gpu, place, "remote_buffers", ())):
            where = (*place, "remote_buffers", at)
            rank = self._number(each, where, "rank", 0, len(self.numbered) - 1)
            remote.append((rank, self.document.choice((*where, "type"), each.get("type"), ("i", "o", "s"))))
        semaphores = len(self._list(gpu, place, "semaphores", ()))
        return tuple(
            self._block(number, block, (*place, "threadblocks", at), channels, remote, semaphores)
            for at, block in enumerate(self._list(gpu, place, "threadblocks"))
        )

    def _block(
        self,
        gpu: int,
        block: dict[str, Any],
        place: KeyPath,
        channels: dict[str, list[Ref]],
        remote: list[tuple[int, str]],
        semaphores: int,
    ) -> tuple[Op, ...]:
        self._check_keys(block, place, "thread block")
        mine: dict[str, list[Ref]] = {"memory": [], "port": []}
        for at, each in enumerate(self._list(block, place, "channels", ())):
            where = (*place, "channels", at)
            kind = each.get("channel_type")
            if kind in tuple(mine):
                ids = self._numbers(each, where, "channel_ids", len(channels[kind]))
                mine[kind] += [channels[kind][channel] for channel in ids]
        refs: dict[str, list[tuple[int, str]]] = {"memory": [], "port": []}
        for at, each in enumerate(self._list(block, place, "remote_buffer_refs", ())):
            where = (*place, "remote_buffer_refs", at)
            kind = self.document.choice(
                (*where, "access_channel_type"), each.get("access_channel_type"), tuple(refs)
            )
            refs[kind] += [
                remote[number] for number in self._numbers(each, where, "remote_buffer_ids", len(remote))
            ]
        ops: list[Op] = []
        for at, each in enumerate(self._list(block, place, "ops")):
            self._op(ops, gpu, each, (*place, "ops", at), mine, refs, semaphores)
        return tuple(ops)

    def _op(
        self,
        ops: list[Op],
        gpu: int,
        data: dict[str, Any],
        place: KeyPath,
        channels: dict[str, list[Ref]],
        refs: dict[str, list[tuple[int, str]]],
        semaphores: int,
    ) -> None:
        document = self.document
        self.count += 1
        check_count(self.count, MOST_OPS, f"{document.name}: operations", "fewer")
        self._check_keys(data, place, "operation")
        name = data.get("name")
        if name in SWITCHED:
            problem = (
                "works in an NVLink switch, which is not simulated; expected channels of type memory or port"
            )
            raise document.error((*place, "name"), f"'{name}' {problem}")
        name = document.choice((*place, "name"), name, OPERATIONS)
        if name == "pipeline":
            # One pass over whole chunks: the parts of a pipeline overlap between thread blocks, which only shortens it.
            self.warnings.append(
                f"{document.where(place)}: a pipeline is taken as one pass over whole chunks"
            )
            for at, each in enumerate(self._list(data, place, "ops")):
                if each.get("name") == "pipeline":
                    raise document.error(
                        (*place, "ops", at, "name"), "a pipeline in a pipeline, expected none"
                    )
                self._op(ops, gpu, each, (*place, "ops", at), channels, refs, semaphores)
            return
        kind = data.get("channel_type", "memory")
        if name not in ("nop", "barrier") and not name.startswith("sem_"):
            document.choice((*place, "channel_type"), kind, tuple(channels))
        kind = kind if kind in tuple(channels) else "memory"
        used = tuple(
            channels[kind][number]
            for number in self._numbers(data, place, "channel_ids", len(channels[kind]))
        )
        sources = self._spans(gpu, data, place, "src_buff", refs[kind])
        targets = self._spans(gpu, data, place, "dst_buff", refs[kind])
        if name in MOVES or name in SUMS:
            sources, targets = self._checked(gpu, name, sources, targets, place)
        if name in (*SIGNALS, *WAITS) and not used:
            raise document.error((*place, "channel_ids"), "none, expected at least one channel")
        group = data.get("tbg_info")
        part = (0, 1)
        if group is not None:
            if not isinstance(group, dict):
                document.reject((*place, "tbg_info"), group, "tb_id and tbg_size")
            size = self._number(group, (*place, "tbg_info"), "tbg_size", 1, 1024)
            part = (self._number(group, (*place, "tbg_info"), "tb_id", 0, size - 1), size)
        ids: tuple[int, ...] = ()
        blocks = 0
        if name == "barrier":
            ids = (self._number(data, place, "barrier_id", 0, 1 << 20, 0),)
            blocks = self._number(data, place, "num_threadblocks", 1, 1 << 20, 1)
        elif name in ("sem_acquire", "sem_release"):
            ids = tuple(self._numbers(data, place, "semaphore_ids", semaphores))
        operator = document.choice((*place, "reduce_op"), data.get("reduce_op", "sum"), ("sum", "min", "max"))
        if name in SUMS:
            first, there = self.operator = self.operator or (operator, place)
            if operator != first:
                raise document.error(
                    (*place, "reduce_op"), f"got {operator}, expected {first}, as of {key_text(there)}"
                )
        op = Op(name, sources, targets, used, kind == "port", ids, blocks, part, place)
        if name in PUTS:
            self._warn_twice(ops, op)
        ops.append(op)

    def _spans(
        self, gpu: int, data: dict[str, Any], place: KeyPath, key: str, refs: list[tuple[int, str]]
    ) -> tuple[Span, ...]:
        found = []
        for at, each in enumerate(self._list(data, place, key, ())):
            where = (*place, key, at)
            self._check_keys(each, where, "buffer")
            if "switch_channel_id" in each:
                raise self.document.error(
                    where, "an NVLink switch, which is not simulated; expected a buffer"
                )
            if "buffer_id" in each:
                owner, buffer = (
                    refs[self._number(each, where, "buffer_id", 0, len(refs) - 1)] if refs else (-1, "")
                )
                if owner < 0:
                    raise self.document.error(
                        (*where, "buffer_id"), "the thread block has no remote buffers of this channel"
                    )
            else:
                owner, buffer = gpu, self.document.choice((*where, "type"), each.get("type"), ("i", "o", "s"))
            first = self._number(each, where, "index", 0, 1 << 20)
            count = self._number(each, where, "size", 1, 1 << 20)
            inputs, outputs, scratch = self.chunks[owner]
            room = {"i": inputs, "o": outputs, "s": scratch}[buffer]
            # In place, both names mean one buffer, as long as the longer of both.
            if self.data.get("inplace") is True and buffer in "io":
                room = max(inputs, outputs)
            if first + count > room:
                raise self.document.error(
                    where,
                    f"chunks {first} to {first + count - 1} of buffer {buffer} of gpu {owner}, which has {room}",
                )
            found.append(Span(owner, buffer, first, count))
        return tuple(found)

    def _checked(
        self, gpu: int, name: str, sources: tuple[Span, ...], targets: tuple[Span, ...], place: KeyPath
    ) -> tuple[tuple[Span, ...], tuple[Span, ...]]:
        """Return what an operation of data reads and writes, with what of it is packets."""
        if not sources or not targets:
            raise self.document.error(place, f"{name} without {'src_buff' if not sources else 'dst_buff'}")
        if name in MOVES and len(sources) not in (1, len(targets)):
            raise self.document.error(
                place, f"{name} of {len(sources)} sources to {len(targets)} destinations"
            )
        if len({span.count for span in (*sources, *targets)}) > 1:
            raise self.document.error(place, f"{name}: sizes of its buffers differ, expected equal ones")
        reads_far, writes_far = (
            name in ("get", "rre", "rres"),
            name in (*PUTS, "rppkt", "res", "rres", "respkt", "recspkt"),
        )
        for span in sources if not reads_far else ():
            if span.gpu != gpu:
                raise self.document.error(
                    (*place, "src_buff"), f"{name} reads gpu {span.gpu}, expected a local buffer"
                )
        for span in targets if not writes_far else ():
            if span.gpu != gpu:
                raise self.document.error(
                    (*place, "dst_buff"), f"{name} writes gpu {span.gpu}, expected a local buffer"
                )
        if not name.endswith("pkt"):
            return sources, targets
        # Packets stand in scratch: those that come in, and those that go out.
        if name in ("rppkt", "upkt"):
            sources = tuple(replace(span, packet=True) for span in sources)
        elif name in SUMS:
            sources = tuple(
                replace(span, packet=span.buffer == "s" and at > 0) for at, span in enumerate(sources)
            )
        if name != "upkt":
            sends = name in ("ppkt", "rppkt", "cpkt")
            targets = tuple(
                replace(span, packet=sends or (at > 0 and (span.gpu != gpu or span.buffer == "s")))
                for at, span in enumerate(targets)
            )
        return sources, targets
