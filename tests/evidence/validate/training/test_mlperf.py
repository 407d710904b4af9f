"""Logs of MLPerf Training as studies."""

from __future__ import annotations

import pytest

from armillary.base.errors import InputError
from armillary.evidence.validate.training import mlperf, rows

HEADER = ",".join(mlperf.COLUMNS) + "\n"


def cases(tmp_path, *lines):
    path = tmp_path / "runs.csv"
    path.write_text("# source: somewhere\n" + HEADER + "".join(row + "\n" for row in lines))
    return list(mlperf.cases(path))


@pytest.mark.parametrize(
    ("system", "expected"),
    [
        ("theia_ngpu512_ngc25.09_nemo", ("GB300", 512)),
        ("nebius_h200_n128", ("H200", 1024)),
        ("hpg.dgxb200x8.n56", ("B200", 448)),
        ("2xXE9680Lx8B200-SXM-180GB", ("B200", 16)),
        ("gb300_n18_ngc25.04_nemo", ("GB300", 72)),
        ("HPE-Cray-XD670-H200-SXM5-141GB_n8_25.09", ("H200", 64)),
        ("8xBM.GPU.B200.8", ("B200", 64)),
        ("b200_8x8_ngc25.09", ("B200", 64)),
        ("8xKinabalux18x4GB200", ("GB200", 576)),
        ("SR680aV4-8xB300_SXM", ("B300", 8)),
        ("SYS-422GS-NBRT-LCC", ("B200", 8)),
        ("eos_n128_ngc24.04_nemo", ("H100", 1024)),
    ],
)
def test_machines_of_paths(system, expected):
    assert mlperf.machine_of(system) == expected


def test_machines_that_paths_do_not_say():
    assert "names no GPU" in mlperf.machine_of("D74H-7U")
    assert "no machine with MI355X" in mlperf.machine_of("MI355X_EPYC_9575F_pytorch")


def test_plans_follow_from_batch_and_accumulation(tmp_path):
    deep, small, turns = cases(
        tmp_path,
        "v5.1,llama31_405b,A/results/x_gb300_ngpu512/llama31_405b/result_0.txt,1152,8192,72.0,60,13.5",
        "v5.1,llama31_8b,A/results/x_h200_n1/llama31_8b/result_0.txt,16,8192,1.0,60,0.5",
        "v5.1,llama31_8b,A/results/x_b200_n64/llama31_8b/result_0.txt,64,8192,1.0,60,0.5",
    )
    assert deep.measured == pytest.approx(13500) and deep.npus == 512
    assert deep.plan["parallel"] == {"tp": 2, "pp": 8, "cp": 2, "overlap": True}
    assert deep.plan["pipeline"]["layers"][0] == 1 and sum(deep.plan["pipeline"]["layers"]) == 126
    assert small.plan["microbatch"] == 2 and small.plan["numbers"]["compute"] == "fp8"
    assert turns.plan["parallel"] == {"tp": 2, "pp": 1, "cp": 4, "overlap": True}
    assert deep.plan["numbers"]["compute"] == "fp4" and any("NVFP4 on GB300" in text for text in deep.assumed)


def test_launch_scripts_say_precision_and_parallelism(tmp_path):
    """UF trains 8B in fp8 where Nebius takes NVFP4; a size that a script does not have falls back on the rules."""
    florida, nebius, cisco, other, older = cases(
        tmp_path,
        "v5.1,llama31_8b,University-of-Florida/results/hpg.dgxb200x8.n1/l/result_0.txt,16,8192,1.0,60,0.5",
        "v5.1,llama31_8b,Nebius/results/nebius_b200_n1/l/result_0.txt,16,8192,1.0,60,0.5",
        "v5.1,llama31_8b,Cisco/results/hpf_n16/l/result_0.txt,64,8192,1.0,60,0.5",
        "v5.1,llama31_8b,Cisco/results/hpf_n16/l/result_0.txt,32,8192,1.0,60,0.5",
        "v5.0,llama31_8b,University-of-Florida/results/hpg.dgxb200x8.n1/l/result_0.txt,16,8192,1.0,60,0.5",
    )
    assert florida.plan["numbers"] == {"compute": "fp8", "recipe": "current", "gradients": "bf16"}
    assert nebius.plan["numbers"]["recipe"] == "nvfp4" and "host" in nebius.plan
    assert cisco.plan["parallel"] == {"tp": 2, "pp": 1, "cp": 1, "overlap": True} and "host" not in cisco.plan
    assert other.plan["parallel"]["cp"] == 2 and "which rows do not say" in other.assumed[0]
    assert older.plan["numbers"]["compute"] == "fp4" and "which rows do not say" in older.assumed[0]
    assert "launch script" in florida.assumed[0]


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ("v5.1,llama31_8b,A/results/x_b200_n1/llama31_8b/result_0.txt,16,8192,1.0,60,", "no step time"),
        ("v5.1,bert,A/results/x_b200_n1/l/result_0.txt,8,,1,9,1.1", "no model 'bert'"),
        (
            "v5.1,llama31_8b,A/results/x_b200_n1/l/result_0.txt,15,8192,2,9,1.1",
            "expected a whole number of samples",
        ),
        (
            "v5.1,llama31_8b,A/results/x_b200_n1/l/result_0.txt,12,8192,1,9,1.1",
            "12 samples at a time on 8 GPUs",
        ),
    ],
)
def test_rows_that_cannot_be_predicted(tmp_path, row, said):
    (case,) = cases(tmp_path, row)
    assert case.model is None and said in case.reason


def test_many_rows_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(rows, "MOST_ROWS", 1)
    row = "v5.1,llama31_8b,A/results/x_b200_n1/l/result_0.txt,16,8192,1,9,1.1"
    with pytest.raises(InputError, match=r"runs.csv:4: more than 1 rows"):
        cases(tmp_path, row, row)


def test_bad_rows(tmp_path):
    with pytest.raises(InputError, match=r"runs.csv:3: global_batch: got 'x', expected a number above 0"):
        cases(tmp_path, "v5.1,llama31_8b,A/results/x_b200_n1/l/result_0.txt,x,8192,1,9,1.1")


@pytest.mark.shared
def test_published_runs(shared):
    found = list(mlperf.cases(shared / "measured/mlperf/mlperf_llm_runs.csv"))
    timed = [case for case in found if not case.apart]
    assert len(timed) > 200 and all(case.model is not None for case in timed)
