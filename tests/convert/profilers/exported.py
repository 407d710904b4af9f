"""Files as ``nsys export --type sqlite`` writes them: tables of the public schema, with its columns."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

COLUMNS = {
    "StringIds": "id INTEGER NOT NULL PRIMARY KEY, value TEXT NOT NULL",
    "CUPTI_ACTIVITY_KIND_KERNEL": "start INTEGER NOT NULL, end INTEGER NOT NULL, deviceId INTEGER NOT NULL, "
    "contextId INTEGER NOT NULL, greenContextId INTEGER, streamId INTEGER NOT NULL, correlationId INTEGER, "
    "globalPid INTEGER, demangledName INTEGER NOT NULL, shortName INTEGER NOT NULL, mangledName INTEGER, "
    "launchType INTEGER, cacheConfig INTEGER, registersPerThread INTEGER NOT NULL, gridX INTEGER NOT NULL, "
    "gridY INTEGER NOT NULL, gridZ INTEGER NOT NULL, blockX INTEGER NOT NULL, blockY INTEGER NOT NULL, "
    "blockZ INTEGER NOT NULL, staticSharedMemory INTEGER NOT NULL, dynamicSharedMemory INTEGER NOT NULL, "
    "graphNodeId INTEGER, graphId INTEGER",
    "CUPTI_ACTIVITY_KIND_MEMCPY": "start INTEGER NOT NULL, end INTEGER NOT NULL, deviceId INTEGER NOT NULL, "
    "contextId INTEGER NOT NULL, streamId INTEGER NOT NULL, correlationId INTEGER, globalPid INTEGER, "
    "bytes INTEGER NOT NULL, copyKind INTEGER NOT NULL, srcKind INTEGER, dstKind INTEGER, graphNodeId INTEGER",
    "CUPTI_ACTIVITY_KIND_MEMSET": "start INTEGER NOT NULL, end INTEGER NOT NULL, deviceId INTEGER NOT NULL, "
    "contextId INTEGER NOT NULL, streamId INTEGER NOT NULL, correlationId INTEGER, globalPid INTEGER, "
    "value INTEGER NOT NULL, bytes INTEGER NOT NULL, memKind INTEGER",
    "CUPTI_ACTIVITY_KIND_RUNTIME": "start INTEGER NOT NULL, end INTEGER NOT NULL, eventClass INTEGER NOT NULL, "
    "globalTid INTEGER, correlationId INTEGER, nameId INTEGER NOT NULL, returnValue INTEGER NOT NULL, "
    "callchainId INTEGER",
    "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION": "start INTEGER NOT NULL, end INTEGER NOT NULL, deviceId INTEGER NOT NULL, "
    "contextId INTEGER NOT NULL, streamId INTEGER NOT NULL, correlationId INTEGER, globalPid INTEGER, "
    "syncType INTEGER NOT NULL, eventId INTEGER NOT NULL",
    "CUPTI_ACTIVITY_KIND_CUDA_EVENT": "deviceId INTEGER NOT NULL, contextId INTEGER NOT NULL, "
    "streamId INTEGER NOT NULL, correlationId INTEGER, globalPid INTEGER, eventId INTEGER NOT NULL",
    "CUPTI_ACTIVITY_KIND_GRAPH_TRACE": "start INTEGER NOT NULL, end INTEGER NOT NULL, deviceId INTEGER NOT NULL, "
    "graphId INTEGER NOT NULL, contextId INTEGER, streamId INTEGER NOT NULL, correlationId INTEGER, globalPid INTEGER",
    "NVTX_EVENTS": "start INTEGER NOT NULL, end INTEGER, eventType INTEGER NOT NULL, rangeId INTEGER, "
    "category INTEGER, color INTEGER, text TEXT, globalTid INTEGER, endGlobalTid INTEGER, textId INTEGER, "
    "domainId INTEGER, uint64Value INTEGER, int64Value INTEGER, doubleValue REAL, uint32Value INTEGER, "
    "int32Value INTEGER, floatValue REAL, jsonTextId INTEGER, jsonText TEXT",
    "TARGET_INFO_SESSION_START_TIME": "utcEpochNs INTEGER, utcTime TEXT, localTime TEXT",
    "OSRT_API": "start INTEGER NOT NULL, end INTEGER NOT NULL, globalTid INTEGER, nameId INTEGER NOT NULL",
}  # fmt: skip
HOST = (7 << 56) | (1 << 48)


@dataclass
class Export:
    """A file in the making."""

    old: bool = False
    """Without the columns that versions of 2020 lack."""
    rows: dict[str, list[dict[str, object]]] = field(default_factory=dict)
    texts: dict[str, int] = field(default_factory=dict)
    correlations: int = 100

    def text(self, value: str) -> int:
        return self.texts.setdefault(value, len(self.texts) + 1)

    def add(self, table: str, **values: object) -> None:
        self.rows.setdefault(table, []).append(values)

    def thread(self, pid: int, tid: int = 1) -> int:
        return HOST | pid << 24 | tid

    def call(self, pid: int, name: str, start: int, end: int, tid: int = 1) -> int:
        """Add a call of the runtime, and return its correlation."""
        self.correlations += 3  # others are not traced
        self.add(
            "CUPTI_ACTIVITY_KIND_RUNTIME", start=start, end=end, eventClass=0, globalTid=self.thread(pid, tid),
            correlationId=self.correlations, nameId=self.text(name), returnValue=0,
        )  # fmt: skip
        return self.correlations

    def kernel(
        self, pid: int, name: str, launch: tuple[int, int], start: int, end: int, stream: int = 7
    ) -> None:
        """Add a kernel with its launch."""
        correlation = self.call(pid, "cudaLaunchKernel_v7000", *launch)
        long, short = self.text(name), self.text(name.partition("(")[0])
        self.add(
            "CUPTI_ACTIVITY_KIND_KERNEL", start=start, end=end, deviceId=pid % 8, contextId=1, streamId=stream,
            correlationId=correlation, globalPid=self.thread(pid, 0), demangledName=long, shortName=short,
            registersPerThread=32, gridX=1, gridY=1, gridZ=1, blockX=128, blockY=1, blockZ=1, staticSharedMemory=0,
            dynamicSharedMemory=0,
        )  # fmt: skip

    def range(self, pid: int, text: str, start: int, end: int, payload: str = "", tid: int = 1) -> None:
        """Add a push/pop range; its text is an id, as NVTX's registered strings are."""
        more: dict[str, object] = {"jsonText": payload} if payload else {}
        self.add(
            "NVTX_EVENTS", start=start, end=end, eventType=59, globalTid=self.thread(pid, tid), textId=self.text(text),
            domainId=0, **more,
        )  # fmt: skip

    def write(self, path: Path) -> Path:
        """Write the file."""
        path.unlink(missing_ok=True)
        for text, number in self.texts.items():
            self.add("StringIds", id=number, value=text)
        connection = sqlite3.connect(path)
        for table, rows in self.rows.items():
            columns = COLUMNS[table].split(", ")
            if self.old:
                gone = ("greenContextId", "graphId", "graphNodeId", "mangledName", "jsonText", "jsonTextId")
                columns = [each for each in columns if each.split()[0] not in gone]
            connection.execute(f"CREATE TABLE {table} ({', '.join(columns)})")
            for row in rows:
                names = ", ".join(row)
                marks = ", ".join("?" * len(row))
                connection.execute(f"INSERT INTO {table} ({names}) VALUES ({marks})", tuple(row.values()))
        connection.commit()
        connection.close()
        return path


def step(pids: Iterable[int], **about: bool) -> Export:
    """Return a step of processes: a GEMM, an all-reduce beside another GEMM, and a wait for the device."""
    made = Export(**about)
    ranks = list(pids)
    for rank, pid in enumerate(ranks):
        made.range(
            pid, f"commHash 0xabc commId 0x1 rank {rank} nranks {len(ranks)} nGPUs 1 pid {pid}", 0, 1000
        )
        made.range(pid, "forward", 10_000, 60_000)
        made.kernel(pid, "sm90_xmma_gemm_bf16(Params)", (12_000, 15_000), 20_000, 120_000)
        size = "ncclAllReduce(): commHash 0xabc, stream 0x5, data_size 4194304, type_size 2, red_op 0, pid 1"
        made.range(pid, size, 61_000, 69_000)
        name = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
        made.kernel(pid, name, (62_000, 65_000), 121_000, 321_000, stream=20)
        made.kernel(pid, "sm90_xmma_gemm_bf16(Params)", (72_000, 75_000), 121_000, 221_000)
        made.call(pid, "cudaDeviceSynchronize_v3020", 80_000, 325_000)
        # A file begins where the session does.
        made.range(pid, "step", 5_000, 330_000)
    return made
