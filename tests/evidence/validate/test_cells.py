"""A cell that is no value of its column: each reader names file, line, column and the value."""

from __future__ import annotations

from pathlib import Path

import pytest

from armillary.base.errors import InputError
from armillary.evidence.calibrate import attention, nccl_tables
from armillary.evidence.validate import gemm, silicon, sim_to_real
from armillary.evidence.validate.sniff import suite_of
from armillary.evidence.validate.suites import suites
from armillary.evidence.validate.training import bridge, mpt, vtrain

ROWS = {
    "gemm": (gemm.COLUMNS, "NVIDIA H100 80GB HBM3,bfloat16,4096,4096,4096,0.25"),
    "attention": (attention.COLUMNS, "NVIDIA H100 80GB HBM3,1,4096,32,8,128,0,bfloat16,bfloat16,0,0.3"),
    "nccl": (nccl_tables.SINGLE_NODE, "h100_sxm,2.21,all_reduce,half,8,1048576,60.0,30.58"),
    "bridge": (bridge.COLUMNS, "26.06,pre-training,DGX-H100,LLAMA3 8B,8,BF16,128,1,8192,0,1,1,1,1,1,10000"),
    "mpt": (mpt.COLUMNS, "7b,2048,8,h100_80gb,4,4,128,9000,bf16,DEFAULT,FULL_SHARD,True"),
    "vtrain": (vtrain.COLUMNS, "8,16,2,2048,16,4,2048,2,4,1,500.5"),
    "silicon": (
        silicon.COLUMNS,
        "x; silicon_concurrency=4,vllm,a/Llama-3.1-8B-Instruct,h100_sxm,fp8,agg,64,10,1,1,1,1,12.5,5.25",
    ),
    "sim-to-real": (
        sim_to_real.COLUMNS, "one,blis,a/Llama-3.1-8B,general,0,ttft_mean,20.5,21.5,H100,FP8,1,2048",
    ),
}  # fmt: skip


def read(kind: str, path: Path) -> object:
    match kind:
        case "gemm":
            return gemm._read(path, path.read_text())
        case "attention":
            return attention.read_prefills(path)
        case "nccl":
            return nccl_tables.read_file(path)
        case "silicon":
            return silicon.read_cases(path)
        case "sim-to-real":
            return sim_to_real.read_points([path])
    return list({"bridge": bridge, "mpt": mpt, "vtrain": vtrain}[kind].cases(path))


def put(path: Path, kind: str, between: str = ",", **changed: str) -> Path:
    header, row = ROWS[kind]
    cells = dict(zip(header, row.split(","), strict=True))
    lines = [header, cells.values(), (cells | changed).values()]
    path.write_text("# a note\n" + "".join(f"{between.join(line)}\n" for line in lines) + "\n , \n")
    return path


@pytest.mark.parametrize(
    ("kind", "column"),
    [
        ("gemm", "m"), ("gemm", "latency"), ("attention", "isl"), ("attention", "step"), ("attention", "latency"),
        ("nccl", "bytes"), ("nccl", "us"), ("bridge", "#-GPUs"), ("bridge", "TP"), ("bridge", "Tokens / sec / GPU"),
        ("mpt", "SeqLen (T)"), ("mpt", "Throughput (T/s/GPU)"), ("vtrain", "# layers"), ("silicon", "isl"),
        ("silicon", "silicon_ttft_ms"), ("sim-to-real", "stage_index"), ("sim-to-real", "actual"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("value", ["abc", "nan", "-7"])
def test_what_is_no_value_is_named_with_its_line_and_column(
    tmp_path: Path, kind: str, column: str, value: str
) -> None:
    path = put(tmp_path / "m.csv", kind, **{column: value})
    with pytest.raises(InputError) as error:
        read(kind, path)
    assert f"{path}:4: {column}: got '{value}', expected " in str(error.value)


@pytest.mark.parametrize("column", ["#-GPUs", "GBS", "Tokens / sec / GPU"])
def test_nothing_of_megatron_bridge_is_divided_by(tmp_path: Path, column: str) -> None:
    with pytest.raises(InputError, match=r"expected a (whole number of at least 1|number above 0)"):
        read("bridge", put(tmp_path / "m.csv", "bridge", **{column: "0"}))


def test_a_release_may_be_unknown(tmp_path: Path) -> None:
    assert list(bridge.cases(put(tmp_path / "m.csv", "bridge", release="")))[1].facts["release"] == ""


@pytest.mark.parametrize("kind", ROWS)
def test_spaces_around_cells_mean_nothing(tmp_path: Path, kind: str) -> None:
    plain, spaced = put(tmp_path / "a.csv", kind), put(tmp_path / "b.csv", kind, " , ")
    assert suite_of(plain, suites()) is suite_of(spaced, suites())
    assert repr(read(kind, plain)).replace("a.csv", "b.csv") == repr(read(kind, spaced))


def test_sizes_of_gemms_may_be_written_as_a_spreadsheet_does(tmp_path: Path) -> None:
    assert read("gemm", put(tmp_path / "a.csv", "gemm", m="4096.0")) == read(
        "gemm", put(tmp_path / "b.csv", "gemm")
    )
