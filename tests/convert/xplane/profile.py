"""Profiles as XLA writes them: messages by the schema, planes of TPUs and GPUs, and the modules that they ran.

No profile of a TPU or GPU is at hand; names and stats of their planes are those that XLA's sources give them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

US = 1000
F32, BF16 = 11, 16


def varint(value: int) -> bytes:
    """Return a whole number."""
    value %= 1 << 64
    found = bytearray()
    while value > 127:
        found.append(value & 127 | 128)
        value >>= 7
    return bytes([*found, value])


def field(number: int, value: int | str | bytes) -> bytes:
    """Return a field: a whole number, or what has a length."""
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    data = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(data)) + data


class Plane:
    """One plane."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.stat_names: list[str] = []
        self.kinds: list[bytes] = []
        self.lines: list[bytes] = []

    def stat(self, name: str, value: int | str | bytes) -> bytes:
        """Return a stat; a text that begins with & is the name of another stat."""
        if isinstance(value, str) and value.startswith("&"):
            number: tuple[int, int | str | bytes] = 7, self._named(value[1:])
        else:
            number = {int: 3, str: 5, bytes: 6}[type(value)], value
        return field(1, self._named(name)) + field(*number)

    def _named(self, name: str) -> int:
        if name not in self.stat_names:
            self.stat_names.append(name)
        return self.stat_names.index(name) + 1

    def kind(self, name: str, display: str = "", number: int = 0, **stats: int | str | bytes) -> int:
        """Add a kind of events and return its number."""
        number = number or len(self.kinds) + 1
        shown = field(4, display) if display else b""
        body = field(1, number) + field(2, name) + shown
        body += b"".join(field(5, self.stat(key, value)) for key, value in stats.items())
        self.kinds.append(field(1, number) + field(2, body))
        return number

    def line(
        self, name: str, events: Iterable[tuple[int, int, int, dict[str, int | str]]], begin: int = 0
    ) -> None:
        """Add a line of events: kind, start and end in ns, and stats."""
        body = field(2, name) + field(3, begin)
        for number, start, end, stats in events:
            times = field(2, (start - begin) * 1000) + field(3, (end - start) * 1000)
            about = b"".join(field(4, self.stat(key, value)) for key, value in stats.items())
            body += field(4, field(1, number) + times + about)
        self.lines.append(body)

    def bytes(self) -> bytes:
        """Return the message."""
        names = (
            field(1, at) + field(2, field(1, at) + field(2, name))
            for at, name in enumerate(self.stat_names, 1)
        )
        parts = [*(field(3, each) for each in self.lines), *(field(4, each) for each in self.kinds)]
        return field(2, self.name) + b"".join(parts) + b"".join(field(5, each) for each in names)


def space(planes: Iterable[Plane]) -> bytes:
    """Return a file of planes."""
    return b"".join(field(1, plane.bytes()) for plane in planes)


def instruction(
    number: int, name: str, opcode: str, dims: Sequence[int], operands: Sequence[int] = (), kind: int = F32,
    groups: Sequence[Sequence[int]] = (), pairs: Sequence[Sequence[int]] = (), channel: int = 0,
) -> bytes:  # fmt: skip
    """Return an HloInstructionProto."""
    shape = field(2, kind) + field(3, b"".join(map(varint, dims)))
    found = field(1, name) + field(2, opcode) + field(3, shape) + field(35, number)
    found += field(36, b"".join(map(varint, operands)))
    if channel:
        found += field(26, channel) + field(71, 1)
    if groups:
        listed = b"".join(field(1, field(1, b"".join(map(varint, row)))) for row in groups)
        found += field(87, listed)
    for source, target in pairs:
        found += field(52, field(1, source) + field(2, target))
    return found


def module(name: str, instructions: Iterable[bytes], devices: Sequence[int]) -> bytes:
    """Return an HloProto of one computation, which runs on one replica of as many partitions as devices."""
    computation = field(1, "main") + b"".join(field(2, each) for each in instructions)
    table = (
        field(1, 1) + field(2, len(devices)) + b"".join(field(3, field(1, varint(each))) for each in devices)
    )
    return field(1, field(1, name) + field(3, computation) + field(15, table))


REDUCE = "%all-reduce.1 = f32[1024]{0:T(1024)} all-reduce(f32[1024]{0:T(1024)} %fusion.1), channel_id=1, "
START = "%all-gather-start.2 = (bf16[512]{0}, bf16[1024]{0}) all-gather-start(bf16[512]{0} %fusion.1), channel_id=2, "
GROUPS = "replica_groups=[1,{0}]<=[{0}], use_global_device_ids=true"


def tpu(devices: int = 2, *, texts: bool = True, beside: bool = True, hosts: int = 1) -> list[bytes]:
    """Return the files of hosts with TPUs: a loop of 2, an all-reduce, and an all-gather beside a fusion.

    Args:
        devices: of each host.
        texts: whether the long name of an event is the text of its instruction; else categories and traffic tell.
        beside: whether there is a line of what ran beside the operations.
        hosts: how many files.
    """
    groups = GROUPS.format(devices * hosts)
    found = []
    for _ in range(hosts):
        planes = []
        for number in range(devices):
            plane = Plane(f"/device:TPU:{number}")

            def kind(text: str, short: str, category: str, plane: Plane = plane, **stats: int) -> int:
                long = text if texts else short
                return plane.kind(
                    long, short if texts else "", hlo_category=f"&{category}", program_id=7, **stats
                )

            fused = "%fusion.1 = f32[1024]{0} fusion(f32[1024]{0} %p), kind=kLoop"
            fusion = kind(fused, "fusion.1", "loop fusion", flops=5_000_000, bytes_accessed=8192)
            loop = kind("%while.1 = (f32[1024]{0}) while((f32[1024]{0}) %t), body=%b", "while.1", "while")
            reduce = kind(REDUCE + groups, "all-reduce.1", "all-reduce", bytes_accessed=8192)
            start = kind(START + groups, "all-gather-start.2", "all-gather")
            waits = "%all-gather-done.2 = bf16[1024]{0} all-gather-done((bf16[1024]{0}) %all-gather-start.2)"
            done = kind(waits, "all-gather-done.2", "all-gather")
            late = 3 * US * number
            plane.line("XLA Ops", [
                (loop, late, late + 22 * US, {}), (fusion, late, late + 10 * US, {}),
                (fusion, late + 11 * US, late + 21 * US, {}),
                (reduce, late + 22 * US, 50 * US, {}), (start, 50 * US, 51 * US, {}), (fusion, 51 * US, 61 * US, {}),
                (done, 61 * US, 70 * US, {}), (fusion, 72 * US, 80 * US, {}),
            ])  # fmt: skip
            if beside:
                plane.line("Async XLA Ops", [(start, 50 * US + 500, 69 * US, {})])
            ran = plane.kind("jit_step(7)")
            plane.line("XLA Modules", [(ran, late, 80 * US, {})])
            planes.append(plane)
        found.append(space(planes))
    return found


def gpu(devices: Sequence[int] = (0, 1), *, modules: bool = True) -> bytes:
    """Return a file of GPUs: a GEMM, on another stream an all-reduce and a permute, and a GEMM that waits for them."""
    planes = []
    for number in range(len(devices)):
        plane = Plane(f"/device:GPU:{number}")
        about = {"hlo_module": "jit_step", "program_id": 7}
        gemm = plane.kind("ampere_sgemm_128x64_tn")
        reduce = plane.kind("ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)")
        permute = plane.kind("ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)")
        plane.line("Stream #14(Compute)", [
            (gemm, 0, 40 * US, about | {"hlo_op": "dot.1"}), (gemm, 90 * US, 120 * US, about | {"hlo_op": "dot.2"}),
        ])  # fmt: skip
        plane.line("Stream #20(Collective)", [
            (reduce, 42 * US, 70 * US, about | {"hlo_op": "all-reduce-start.1"}),
            (permute, 71 * US, 90 * US, about | {"hlo_op": "collective-permute-start.1"}),
        ])  # fmt: skip
        plane.line("XLA Ops", [(gemm, 0, 120 * US, {})])
        planes.append(plane)
    if modules:
        everyone = list(range(len(devices)))
        ring = [[at, (at + 1) % len(devices)] for at in everyone]
        held = [
            instruction(1, "dot.1", "dot", [512, 512]),
            instruction(
                2, "all-reduce-start.1", "all-reduce-start", [512, 512], [1], groups=[everyone], channel=1
            ),
            instruction(
                3, "collective-permute-start.1", "collective-permute-start", [64], [1], pairs=ring, channel=2
            ),
        ]
        about_modules = Plane("/host:metadata")
        about_modules.kind("jit_step(7)", number=7, **{"Hlo Proto": module("jit_step", held, devices)})
        planes.append(about_modules)
    return space(planes)


def written(folder: Path, data: bytes, name: str = "host.xplane.pb") -> Path:
    """Return the path of a file that has just been written."""
    path = folder / name
    path.write_bytes(data)
    return path
