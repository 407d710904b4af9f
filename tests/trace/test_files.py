"""Files of all ranks: names, compression, what is missing, what is not readable."""

from __future__ import annotations

import gzip
import os
from pathlib import Path

import numpy as np
import pytest
import zstandard

from armillary.base.errors import InputError
from armillary.trace import (
    Graph,
    GraphBuilder,
    Trace,
    decode,
    encode,
    graph_to_json,
    load_trace,
    read_graph,
    write_graph,
    write_trace,
)


def graph(rank: int, size: int = 1 << 20) -> Graph:
    builder = GraphBuilder(first_id=rank)
    builder.all_reduce("AR", size)
    return builder.graph()


def test_equal_files_share_one_graph(tmp_path: Path) -> None:
    for rank in range(6):
        write_graph(tmp_path / f"w.{rank}.et", graph(0 if rank != 4 else 1))
    trace = load_trace(tmp_path / "w")
    assert trace.rank_graph.tolist() == [0, 0, 0, 0, 1, 0]
    assert trace.rank_graph.dtype == np.int32
    assert [g.source for g in trace.graphs] == [str(tmp_path / "w.0.et"), str(tmp_path / "w.4.et")]
    assert trace.graph(4).ids.tolist() == [1]
    assert load_trace(str(tmp_path / "w"), ranks=2).n_ranks == 2


def test_the_current_folder_needs_no_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_graph(tmp_path / "w.0.et", graph(0))
    monkeypatch.chdir(tmp_path)
    assert load_trace("w").graphs[0].source == "w.0.et"


def test_compressed_files_whatever_their_name(tmp_path: Path) -> None:
    data = encode(graph(0))
    (tmp_path / "w.0.et").write_bytes(gzip.compress(data, mtime=0))
    (tmp_path / "w.1.et.gz").write_bytes(gzip.compress(data[:9], mtime=0) + gzip.compress(data[9:], mtime=0))
    (tmp_path / "w.2.et.zst").write_bytes(zstandard.ZstdCompressor().compress(data))
    (tmp_path / "w.3.et.gz").write_bytes(data)
    trace = load_trace(tmp_path / "w")
    assert trace.rank_graph.tolist() == [0, 0, 0, 0]


@pytest.mark.parametrize("compress", [None, "gzip", "zstd"])
def test_written_traces_read_back(tmp_path: Path, compress: str | None) -> None:
    trace = Trace.from_ranks([graph(0), graph(1), graph(1)])
    write_trace(tmp_path / "w", trace, compress)  # type: ignore[arg-type]
    again = load_trace(tmp_path / "w")
    assert [encode(again.graph(r)) for r in range(3)] == [encode(trace.graph(r)) for r in range(3)]
    assert not list(tmp_path.glob("*.part"))


def test_json_files(tmp_path: Path) -> None:
    (tmp_path / "w.0.json").write_text(graph_to_json(graph(0)))
    write_graph(tmp_path / "w.1.json", graph(1))
    write_graph(tmp_path / "w.2.et", graph(0))
    (tmp_path / "w.json").write_text("{}")  # communicator groups often lie there
    trace = load_trace(tmp_path / "w")
    assert [encode(trace.graph(r)) for r in range(3)] == [encode(graph(r)) for r in (0, 1, 0)]
    assert encode(read_graph(tmp_path / "w.1.json")) == encode(graph(1))
    assert trace.structures()[1] == [0]


def test_read_only_and_large_files(tmp_path: Path) -> None:
    builder = GraphBuilder()
    for i in range(3000):
        builder.compute(f"node number {i}", duration_micros=i)
    data = encode(builder.graph())
    assert len(data) > 65536
    for rank in range(2):
        (tmp_path / f"w.{rank}.et").write_bytes(data)
        (tmp_path / f"w.{rank}.et").chmod(0o400)
    trace = load_trace(tmp_path / "w")
    assert trace.rank_graph.tolist() == [0, 0]
    assert trace.graphs[0].names()[-1] == "node number 2999"
    assert encode(read_graph(tmp_path / "w.1.et")) == data


def test_a_file_without_a_size_is_read_to_its_end(tmp_path: Path) -> None:
    builder = GraphBuilder()
    for i in range(6000):
        builder.compute(f"node number {i}", duration_micros=i)
    data = encode(builder.graph())
    fifo = tmp_path / "w.0.et"
    os.mkfifo(fifo)
    if os.fork() == 0:
        with fifo.open("wb", buffering=0) as stream:
            for first in range(0, len(data), 20_000):
                stream.write(data[first : first + 20_000])
        os._exit(0)
    assert encode(read_graph(fifo)) == data
    os.wait()


def missing(folder: Path, prefix: str = "w", ranks: int | None = None) -> str:
    with pytest.raises(InputError) as caught:
        load_trace(folder / prefix, ranks)
    return str(caught.value)


def test_a_missing_rank_is_named_with_its_neighbours(tmp_path: Path) -> None:
    for rank in (0, 1, 3, 10):
        write_graph(tmp_path / f"w.{rank}.et", graph(0))
    message = missing(tmp_path)
    assert "w.2.et: no file for rank 2, expected one for every rank from 0 to 10" in message
    assert "nearest: w.0.et, w.1.et, w.3.et, w.10.et" in message


def test_too_few_ranks_are_named(tmp_path: Path) -> None:
    write_graph(tmp_path / "w.0.et", graph(0))
    assert "w.1.et: no file for rank 1, expected one for every rank from 0 to 3" in missing(tmp_path, ranks=4)


def test_a_rank_with_leading_zeros_is_shown_as_it_is(tmp_path: Path) -> None:
    write_graph(tmp_path / "w.00.et", graph(0))
    assert "no file for rank 0, expected one for every rank from 0 to 0; nearest: w.00.et" in missing(
        tmp_path
    )
    assert "ranks is 0, expected at least 1" in missing(tmp_path, ranks=0)


def test_no_file_lists_what_is_there(tmp_path: Path) -> None:
    assert "it is empty" in missing(tmp_path)
    (tmp_path / "notes.txt").touch()
    assert "it holds notes.txt" in missing(tmp_path)
    write_graph(tmp_path / "work.0.et", graph(0))
    assert "prefixes there: work" in missing(tmp_path)
    assert "No such file" in missing(tmp_path / "absent")
    assert "expected a prefix such as" in missing(tmp_path, ".") or "no trace file" in missing(tmp_path, ".")
    with pytest.raises(InputError, match="expected a prefix"):
        load_trace(f"{tmp_path}/")


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"\x1f\x8b\x08\x00garbage", "damaged gzip file"),
        (gzip.compress(b"x" * 100, mtime=0)[:-9], "damaged gzip file"),
        (b"\x28\xb5\x2f\xfdgarbage", "damaged zstd file"),
        (zstandard.ZstdCompressor().compress(encode(graph(0)))[:-8], "zstd|cut off"),
        (b"", "the file is empty"),
        (gzip.compress(b"", mtime=0), "the file is empty"),
        (encode(graph(0))[:-3], "w.1.et: damaged or cut off"),
    ],
)
def test_a_damaged_file_is_named(tmp_path: Path, data: bytes, message: str) -> None:
    write_graph(tmp_path / "w.0.et", graph(0))
    (tmp_path / "w.1.et").write_bytes(data)
    with pytest.raises(InputError, match=message) as caught:
        load_trace(tmp_path / "w")
    assert "w.1.et: " in str(caught.value)
    with pytest.raises(InputError, match=message):
        read_graph(tmp_path / "w.1.et")


def test_unreadable_and_unwritable_paths(tmp_path: Path) -> None:
    (tmp_path / "w.0.et").mkdir()
    assert "directory" in missing(tmp_path)
    with pytest.raises(InputError, match="No such file"):
        read_graph(tmp_path / "absent.et")
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="expected a"):
        write_graph(tmp_path / "file" / "w.0.et", graph(0))


def test_a_large_trace_uses_the_compiled_decoder_and_agrees(tmp_path: Path) -> None:
    for rank in range(300):
        write_graph(tmp_path / f"w.{rank}.et", graph(rank, size=1 << 30))
    trace = load_trace(tmp_path / "w")
    assert len(trace.graphs) == 300
    for rank in (0, 128, 299):
        data = (tmp_path / f"w.{rank}.et").read_bytes()
        assert encode(trace.graph(rank)) == data
        assert trace.graph(rank).attrs(0) == decode(data).attrs(0)
    structure, examples = trace.structures()
    assert set(structure.tolist()) == {0}
    assert examples == [0]
