"""Built-in compute models keep to the protocol, and say what they should."""

from __future__ import annotations

import csv
import importlib.metadata
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from armillary.base.errors import InputError
from armillary.compute import ComputeModel, Device, Times, Work, find_model
from armillary.compute.overrides import idle, overridden
from armillary.compute.roofline import Roofline
from armillary.compute.systolic import Dataflow, Systolic, cycles
from armillary.compute.table import Table
from armillary.compute.table_file import read_table
from armillary.compute.tiled import Tiled, moved
from armillary.platform.kernels import Override
from armillary.testing.compute import DEVICE, check_compute_model, part, sample_work
from armillary.trace.gemm import Gemm, to_gemms, to_numbers

ARRAY = {"rows": 16, "columns": 8, "dataflow": "weight", "clock": 1e9, "arrays": 2, "stall": True}
SHARED = Path(__file__).parents[3] / "shared/measured/gemm"


def table_file(folder: Path, rows: list[tuple[object, ...]], header: str = "m,n,k,time") -> Path:
    path = folder / "gemm.csv"
    with path.open("w") as file:
        file.write(header + "\n")
        csv.writer(file).writerows(rows)
    return path


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """Products at half the peak, in us, on a grid of powers of 4."""
    sizes = [4**e for e in range(3, 8)]
    rows = [
        (m, n, k, Roofline(DEVICE).durations(one(Gemm(m, n, k))).ns[0] * 2 / 1e3)
        for m in sizes
        for n in sizes
        for k in sizes
    ]
    return table_file(tmp_path, rows)


def one(*gemms: Gemm, precision: str = "bf16", name: str = "k") -> Work:
    operations = np.array([sum(each.operations for each in gemms)])
    size = np.array([2 * sum(each.elements for each in gemms)])
    return Work((name,), operations, size, (precision,), (gemms,), np.zeros(1, np.int64))


def makers(table: Path) -> Iterator[Callable[[], ComputeModel]]:
    yield lambda: Roofline.create({}, DEVICE, Path())
    yield lambda: Systolic.create(ARRAY, DEVICE, Path())
    yield lambda: Tiled.create({"buffer": 1 << 20}, DEVICE, Path())
    yield lambda: Table.create({"file": table.name}, DEVICE, table.parent)


def test_built_in_models_keep_to_the_protocol(table: Path) -> None:
    for make in makers(table):
        check_compute_model(make)


class Bad(Roofline):
    """What the conformance suite must find."""

    how = ""

    def durations(self, work: Work) -> Times:
        ns = np.nan_to_num(super().durations(work).ns, nan=1.0)
        if self.how == "order":
            return Times(np.sort(ns))
        if self.how == "batch":
            return Times(ns * len(work))
        if self.how == "negative":
            return Times(ns - 1e6)
        if self.how == "input":
            work.size[:] = 1
            return Times(ns)
        if self.how == "bound":
            return Times(ns, ("x",))
        return Times(ns[:-1])


@pytest.mark.parametrize(
    ("how", "said"),
    [("order", "order"), ("batch", "alone"), ("negative", "negative"), ("input", "changes its input"),
     ("bound", "bounds"), ("short", "shape")],
)  # fmt: skip
def test_the_suite_finds_models_that_do_not(how: str, said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Bad, "how", how)
    with pytest.raises(AssertionError, match=said):
        check_compute_model(lambda: Bad(DEVICE))


def test_a_gemm_is_written_as_it_is_read() -> None:
    gemms = (Gemm(2, 3, 4), Gemm(5, 6, 7, 8, 9))
    assert to_gemms(to_numbers(gemms)) == gemms
    assert gemms[1].operations == 2 * 5 * 6 * 7 * 8 * 9
    for bad in ([1, 2, 3], [1, 1, 1, 1, 0]):
        with pytest.raises(ValueError, match="five integers"):
            to_gemms(bad)


def test_roofline_knows_what_bounds_a_kernel() -> None:
    times = Roofline(DEVICE).durations(sample_work())
    assert times.bound[0] == "compute" and times.ns[0] == pytest.approx(2 * 4096**3 / 1e14 * 1e9)
    assert times.bound[-3] == "memory" and times.ns[-3] == pytest.approx(10**7 / 2e12 * 1e9)
    assert np.isnan(times.ns[-2:]).all()
    with pytest.raises(
        InputError, match=r"'k' has precision 'fp4' without a peak; expected one of bf16, fp8"
    ):
        Roofline(DEVICE).durations(one(Gemm(1, 1, 1), precision="fp4"))


def test_a_table_gives_measured_times_and_the_ratio_between_them(table: Path) -> None:
    model = Table.create({"file": table.name}, DEVICE, table.parent)
    for gemm in (Gemm(64, 64, 64), Gemm(1024, 256, 4096), Gemm(300, 5000, 777), Gemm(128, 200, 100)):
        found, roof = model.durations(one(gemm)), Roofline(DEVICE).durations(one(gemm))
        assert found.ns[0] == pytest.approx(2 * roof.ns[0], rel=1e-6)
        assert found.bound == ("measured",) and found.beyond is not None and found.beyond[0] == 1
    # Calls add up; a batch is one product of as many rows.
    single, calls, batch = (
        model.durations(one(Gemm(256, 256, 256, *more))).ns[0] for more in ((), (1, 3), (4, 1))
    )
    assert calls == pytest.approx(3 * single)
    assert batch == pytest.approx(model.durations(one(Gemm(1024, 256, 256))).ns[0])


def test_a_table_says_how_far_it_went(table: Path) -> None:
    model = Table.create({"file": table.name}, DEVICE, table.parent)
    far = model.durations(one(Gemm(16384, 16384, 4 * 16384)))
    assert far.beyond is not None and far.beyond[0] == pytest.approx(4)
    assert far.ns[0] == pytest.approx(2 * Roofline(DEVICE).durations(one(Gemm(16384, 16384, 65536))).ns[0])
    small = model.durations(one(Gemm(16, 64, 64)))
    assert small.beyond is not None and small.beyond[0] == pytest.approx(4)
    other = model.durations(one(Gemm(64, 64, 64), precision="fp8"))
    assert np.isnan(other.ns[0]) and "1 different GEMMs in fp8" in other.notes[0]


def test_rows_and_columns_of_a_table_change_places(tmp_path: Path) -> None:
    path = table_file(tmp_path, [(8, 4096, 512, 3.5), (8, 8192, 512, 7.0)])
    model = Table.create({"file": path.name}, DEVICE, tmp_path)
    assert model.durations(one(Gemm(8192, 8, 512))).ns[0] == pytest.approx(7000)


def test_repeated_rows_give_their_median_and_precisions_are_apart(tmp_path: Path) -> None:
    rows = [
        (8, 8, 8, 1, "bfloat16"),
        (8, 8, 8, 2, "fp16"),
        (8, 8, 8, 9, "half"),
        (8, 8, 8, 5, "fp8"),
        (8, 8, 8, 5, "int4"),
    ]
    found, notes = read_table(
        table_file(tmp_path, rows, "m,n,k,ms,dtype"), {"time": "ms", "precision": "dtype"}, 1e6, "bf16"
    )
    assert {name: each.ns.tolist() for name, each in found.items()} == {"bf16": [2e6], "fp8": [5e6]}
    assert notes == ["gemm.csv: 1 row of precision 'int4' is not used"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a,n,k,time\n1,1,1,1\n", "no column 'm'; it has a, n, k, time"),
        ("m,n,k,time\n1,1,1\n", "gemm.csv:2: 3 values, expected 4"),
        ("m,n,k,time\n1,0,1,5\n", "gemm.csv:2: n is '0', expected a whole number"),
        ("m,n,k,time\n1,1,1,-5\n", "gemm.csv:2: time is '-5', expected a number above 0"),
        ("m,n,k,time\n", "no rows below the header"),
        ("m,n,k,time,precision\n1,2,3,4,int3\n", "precision: got 'int3', expected rows of some of fp32"),
        ("", "it has none"),
    ],
)
def test_a_malformed_table_is_one_error(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "gemm.csv"
    path.write_text(text)
    with pytest.raises(InputError) as error:
        Table.create({"file": path.name}, DEVICE, tmp_path)
    assert said in str(error.value)


@pytest.mark.shared
@pytest.mark.parametrize(
    ("name", "peak", "memory", "most"), [("a100", 312e12, 2.039e12, 0.05), ("h100", 989e12, 3.35e12, 0.04)]
)
def test_measured_gemms_that_are_held_back(name: str, peak: float, memory: float, most: float) -> None:
    """Of nearly 7,400 measured products a fifth is predicted from the others; the roofline is off by 36 to 51 %."""
    from armillary.compute.table import ELEMENT, Surface
    from armillary.compute.table_file import Measured

    if not SHARED.exists():
        pytest.skip("no ../shared/measured/gemm")
    found, _ = read_table(
        SHARED / f"{name}.csv.gz", {"time": "latency", "precision": "gemm_dtype"}, 1e6, "bf16"
    )
    all_ = found["bf16"]
    order = np.random.default_rng(0).permutation(len(all_.ns))
    out, kept = order[:500], order[len(order) // 5 :]
    surface = Surface(Measured(all_.sizes[kept], all_.ns[kept]), peak, memory, ELEMENT["bf16"])
    error = np.array([abs(surface.time(*all_.sizes[at].tolist())[0] / all_.ns[at] - 1) for at in out])
    assert np.median(error) < most
    assert error.mean() < 0.07


def by_tiles(gemm: Gemm, down: int, across: int) -> int:
    """Count what tiles of down x across results move, one by one."""
    rows = [min(down, gemm.m - at) for at in range(0, gemm.m, down)]
    columns = [min(across, gemm.n - at) for at in range(0, gemm.n, across)]
    return sum((a + b) * gemm.k + a * b for a in rows for b in columns)


def test_tiles_move_what_is_counted_by_hand() -> None:
    # 16 elements on chip hold 4 x 4 results, or all of 2 rows by 8 columns.
    assert moved(Gemm(12, 8, 5), 16) == by_tiles(Gemm(12, 8, 5), 4, 4) == 2 * 12 * 8 * 5 / 4 + 12 * 8
    assert moved(Gemm(2, 16, 5), 16) == by_tiles(Gemm(2, 16, 5), 2, 8)
    assert moved(Gemm(16, 2, 5), 16) == by_tiles(Gemm(16, 2, 5), 8, 2)
    fits = Gemm(12, 8, 5, batch=3, calls=2)
    assert moved(fits, 96) == moved(fits, 1e9) == fits.elements


def test_a_small_buffer_makes_gemms_wait_for_memory() -> None:
    work, slow = one(Gemm(4096, 4096, 4096)), replace(DEVICE, memory=1e10)
    large, small = (Tiled(slow, size).durations(work) for size in (1 << 30, 2 * 64 * 64))
    assert large.ns[0] == Roofline(slow).durations(work).ns[0]
    assert small.ns[0] == pytest.approx(2 * (2 * 4096**3 / 64 + 4096**2) / 10)
    assert np.isnan(
        Tiled(slow, 1)
        .durations(Work(("k",), work.operations, work.size, ("bf16",), ((),), work.recorded))
        .ns[0]
    )


def test_systolic_cycles_by_hand() -> None:
    # One fold: 4 + 4 + 4 - 2 cycles; weights take 4 more to load. Of 10 rows on 4 there are three folds.
    assert cycles(Gemm(4, 4, 4), 4, 4, "output") == 10
    assert cycles(Gemm(4, 4, 4), 4, 4, "weight") == 14
    assert cycles(Gemm(10, 4, 4, batch=2, calls=3), 4, 4, "output") == 3 * 2 * 3 * 10


def test_memory_can_stall_a_systolic_array() -> None:
    work = one(Gemm(1, 4096, 4096))
    fast = {**ARRAY, "rows": 4096, "columns": 4096, "dataflow": "output"}
    free = Systolic.create({**fast, "stall": False}, DEVICE, Path()).durations(work)
    stalled = Systolic.create(fast, replace(DEVICE, memory=1e9), Path()).durations(work)
    assert free.bound == ("compute",) and stalled.bound == ("memory",)
    assert stalled.ns[0] == pytest.approx(work.size[0])


@pytest.mark.parametrize("dataflow", ["output", "weight", "input"])
def test_systolic_cycles_are_those_of_scale_sim(dataflow: Dataflow) -> None:
    """SCALE-sim 3.0.0 lists the operands that enter and leave the array in every cycle; its length is compared."""
    name = f"systolic_compute_{dataflow[0]}s"
    module = pytest.importorskip(f"scalesim.compute.{name}", reason="scalesim (PyPI) is not installed")
    rng = np.random.default_rng(1)
    for _ in range(12):
        rows, columns = (int(x) for x in rng.integers(2, 12, 2))
        m, n, k = (int(x) for x in rng.integers(1, 40, 3))
        left, right = np.ones((m, k)), np.ones((k, n))
        config = SimpleNamespace(
            sparsity_support=False,
            sparsity_optimized_mapping=False,
            get_array_dims=lambda r=rows, c=columns: (r, c),
        )
        more = {} if dataflow != "weight" else {
            "sparsity_ratio_N": 1, "sparsity_ratio_M": 1, "ifmap_op_mat_original": left, "sparsity_filter_array": right,
        }  # fmt: skip
        array = getattr(module, name)()
        array.set_params(
            config_obj=config, ifmap_op_mat=left, filter_op_mat=right, ofmap_op_mat=np.ones((m, n)), **more
        )
        for demand in array.get_demand_matrices():
            assert cycles(Gemm(m, n, k), rows, columns, dataflow) == demand.shape[0], (rows, columns, m, n, k)


def test_the_first_override_that_fits_counts() -> None:
    work = sample_work()
    times = Roofline(DEVICE).durations(work)
    overrides = (
        Override("bf16.0", factor=2.0),
        Override("bf16.*", "flops", efficiency=0.5),
        Override("norm", duration=42.0),
        Override("recorded", factor=3.0),
        Override("nothing", efficiency=0.5),
        Override("bf16.0", factor=99.0),
    )
    found = overridden(work, times, overrides, DEVICE)
    assert found.ns[0] == 2 * times.ns[0]
    assert found.ns[7] == pytest.approx(2 * times.ns[7]) and found.ns[1] == times.ns[1]
    assert found.ns[-3] == 42 and found.ns[-2] == 15_000 and np.isnan(found.ns[-1])
    assert idle(work, overrides) == ["override 6 (name 'bf16.0') fits no kernel"]
    assert idle(part(work, [0]), (overrides[0],)) == []


def test_models_of_other_packages_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    point = importlib.metadata.EntryPoint("mine", "tests_of_mine:Model", "armillary.compute")
    monkeypatch.setattr("armillary.base.extension.entry_points", lambda group: [point])
    with pytest.raises(InputError, match=r"'mine' cannot be loaded: No module named 'tests_of_mine'"):
        find_model("mine")
    with pytest.raises(
        InputError, match=r"no compute model 'min', expected one of .*, mine \(did you mean 'mine'"
    ):
        find_model("min")
    point = importlib.metadata.EntryPoint("mine", "pathlib:Path", "armillary.compute")
    with pytest.raises(InputError, match="expected a subclass of ComputeModel"):
        find_model("mine")
    point = importlib.metadata.EntryPoint("mine", "armillary.compute.roofline:Roofline", "armillary.compute")
    assert find_model("mine") is Roofline


def test_a_device_knows_its_peaks() -> None:
    assert Device(1e12, 1e12).peak_of("fp8") == 1e12
    assert Device(1e12, 1e12, peaks={"bf16": 2e12}).peak_of("fp8") == 0
