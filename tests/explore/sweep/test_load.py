"""What is wrong with a sweep file is told once, when it is read."""

import re
from pathlib import Path

import pytest
import yaml

from armillary.base.errors import InputError
from armillary.explore.sweep import load_sweep
from armillary.explore.sweep.facts import FACTS
from armillary.explore.sweep.measures import MEASURES
from armillary.explore.sweep.schema import Limits, Varied, sweep_schema
from armillary.explore.sweep.schema import Sweep as SweepFile

G = "workload.generate."
OVER = {"platform": {"preset": "dgx-h100"}, "workload": {"collective": "all-reduce", "size": "1 MiB"}}
PAGE = Path(__file__).parents[3] / "docs" / "reference" / "sweep.md"


def test_errors_name_file_and_line(study, tmp_path):
    (tmp_path / "base.yaml").write_text(yaml.safe_dump(study))
    file = tmp_path / "sweep.yaml"
    file.write_text(f"study: base.yaml\nvary:\n  {G}parallel.tp: [1, 2]\n  {G}paralel.pp: [1]\n")
    with pytest.raises(InputError) as error:
        load_sweep(file)
    assert str(error.value) == (
        f"{file}:4: vary.{G}paralel.pp: workload.generate has no key 'paralel' (did you mean 'parallel'?)"
    )
    file.write_text("study: base.yaml\nwhere:\n  - tp <= 8\n  - head % tp == 0\n")
    with pytest.raises(
        InputError, match=r"sweep.yaml:4: where\[1\]: .* no such name 'head' .did you mean .*'heads'"
    ):
        load_sweep(file)
    study["workload"]["generate"]["optimiser"] = "adam"
    (tmp_path / "base.yaml").write_text(yaml.safe_dump(study))
    file.write_text("study: base.yaml\n")
    with pytest.raises(
        InputError, match=r"base.yaml:\d+: .*optimiser: unknown key .did you mean 'optimizer'"
    ):
        load_sweep(file)


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"varies": {}}, "varies: unknown key (did you mean 'vary'?)"),
        ({"study": 3}, "study: got 3, expected a study file"),
        ({"study": "missing.yaml"}, "missing.yaml: no such file"),
        ({"vary": []}, "vary: got [], expected a mapping"),
        ({"vary": {G + "parallel.tp": 3}}, "got 3, expected a list of values, or a mapping"),
        (
            {"vary": {G + "parallel.tq": [1]}},
            "workload.generate.parallel has no key 'tq' (did you mean 'tp'?)",
        ),
        ({"vary": {"platform.network.fabrik.size": [2]}}, "no member 'fabrik' (did you mean 'fabric'?)"),
        ({"vary": {"platform.network.2.size": [2]}}, "no member '2'; it has node, fabric"),
        ({"vary": {G + "parallel.tp": [1, "two"]}}, "got 'two', expected a whole number (value two)"),
        (
            {"study": OVER, "vary": {"platform.preset": ["dgx-h100", "dgx-x100"]}},
            "vary.platform.preset: got 'dgx-x100'",
        ),
        (
            {"study": OVER, "vary": {"platform.network.nvlink.bandwidth": ["9 GB/s", "9 GB"]}},
            "vary.platform.network.nvlink.bandwidth: got '9 GB', with unknown unit",
        ),
        ({"vary": {"platform.network.fabric.bandwidth": [50]}}, "expected a bandwidth with a unit"),
        ({"vary": {G + "model": ["llama-3-8"]}}, "no such preset, nor a file (did you mean 'llama-3-8b'?)"),
        (
            {"vary": {"machine": {"choices": {"a": {}, "b": {G + "model": "llama-3-8"}}}}},
            "no such preset, nor a file (did you mean 'llama-3-8b'?)",
        ),
        (
            {"vary": {"machine": {"choices": {"a": {}, "b": {}}}}},
            "the choices a, b change nothing, expected a key",
        ),
        ({"vary": {G + "parallel.tp": {"from": 1, "too": 8}}}, "tp.too: unknown key (did you mean 'to'?)"),
        ({"vary": {G + "parallel.tp": {"from": 1, "to": 8}}}, "expected one of step, times and count"),
        ({"vary": {G + "parallel.tp": {"values": [1], "step": 1}}}, "and only there"),
        ({"vary": {G + "parallel.tp": {"values": [1], "when": "pp > 1"}}}, "no axis 'pp' is listed before"),
        ({"vary": {G + "parallel.tp": {"values": [1], "name": "mfu"}}}, "'mfu' is the name of a measure"),
        ({"vary": {G + "parallel.tp": {"values": [1], "name": "heads"}}}, "'heads' is what the study says"),
        ({"vary": {"platform.compute.efficiency.compute": ["50 %"]}}, "'compute' is the name of a measure"),
        (
            {"vary": {"platform.network.node.size": [1], "platform.network.fabric.size": [1]}},
            "the name 'size' is taken",
        ),
        (
            {"vary": {G + "parallel.tp": [1], "both": {"choices": {"a": {G + "parallel": {"tp": 1}}}}}},
            "workload.generate.parallel is changed by 'tp', too",
        ),
        ({"let": {"a": "b + 1", "b": "a + 1"}}, "let.a: needs itself, through a, b"),
        ({"let": {"a": "bathc"}}, "no such name 'bathc' (did you mean 'batch'?)"),
        ({"let": {G + "batches": 3}}, "no key 'batches' (did you mean 'batch'?)"),
        ({"let": {"a": [1]}}, "let.a: got [1], expected an expression"),
        ({"where": ["memory fit"]}, "did you mean 'memory fits'?"),
        ({"where": ["run_time < 10 s"]}, "'run_time < 10 s' needs the key tokens"),
        ({"where": ["price < 3"]}, "'price < 3' needs the key costs"),
        ({"objectives": ["minimise step_time"]}, "(did you mean 'minimize'?)"),
        ({"objectives": ["steptime"]}, "no such measure 'steptime' (did you mean 'step_time'?)"),
        ({"objectives": ["npu_years"]}, "'npu_years' needs the key tokens"),
        ({"limits": {"time": "60"}}, "limits.time: got '60', which has no unit"),
        ({"tokens": "many"}, "expected a number of tokens, e.g. '15.6 T'"),
    ],
)
def test_what_is_wrong(study, change, problem):
    with pytest.raises(InputError) as error:
        load_sweep({"study": study, **change})
    assert problem in str(error.value)
    assert "\n" not in str(error.value)


def test_choices_may_be_called_unlike_the_models_that_they_set(study):
    models = {"small": {G + "model": "llama-2-7b"}, "other": {G + "model": "llama-3-8b"}}
    found = load_sweep({"study": study, "vary": {"machine": {"choices": models}}})
    assert [point.values["machine"] for point in found.space.points()] == ["small", "other"]


def test_measures_that_a_workload_cannot_have(study):
    del study["platform"]["npu"]["memory"]["capacity"]
    with pytest.raises(InputError, match=r"where\[0\]: 'memory fits' needs npu.memory.capacity in the study"):
        load_sweep({"study": study, "where": ["memory fits"]})
    assert load_sweep(
        {"study": study, "where": ["memory fits"], "vary": {"platform.npu.memory.capacity": ["80 GB"]}}
    )
    study["workload"] = {"collective": "all-reduce", "size": "1 MiB"}
    with pytest.raises(InputError, match="'tokens_per_second' needs a workload that the study generates"):
        load_sweep({"study": study, "objectives": ["tokens_per_second"]})


def test_keys_that_only_points_have_may_be_missing_in_the_study(study):
    del study["workload"]["generate"]["batch"]
    with pytest.raises(InputError, match="missing key 'batch'"):
        load_sweep({"study": study})
    assert load_sweep({"study": study, "let": {G + "batch": "2 * npus"}}).space.at(0).values == {"batch": 16}


def test_jobs_are_not_swept(study):
    work = study.pop("workload")
    with pytest.raises(InputError, match="jobs: expected workload"):
        load_sweep({"study": study | {"jobs": [{"workload": work, "npus": 8}]}})


def test_all_is_read(study):
    sweep = load_sweep(
        {"study": study, "tokens": "15.6 T", "limits": {"time": "1 min", "memory": "4 GiB"}, "where": ["memory fits"],
         "objectives": ["run_time", "minimize headroom"]}
    )  # fmt: skip
    assert (sweep.tokens, sweep.limits.time, sweep.limits.memory) == (15.6e12, 60.0, 4 * 2**30)
    assert [(each.name, each.goal, each.sign) for each in sweep.objectives] == [
        ("run_time", "minimize", 1),
        ("headroom", "minimize", 1),
    ]


def test_the_page_has_all_keys_names_and_measures():
    tables = "\n".join(line for line in PAGE.read_text().splitlines() if line.startswith("|"))
    known = set(re.findall(r"`([\w.]+)`", tables))
    limits = {f"limits.{name}" for name in Limits.model_fields}
    keys = {*SweepFile.model_fields, *limits} - {"limits"}
    keys |= {field.alias or name for name, field in Varied.model_fields.items()}
    assert keys | FACTS.keys() | MEASURES.keys() <= known
    firsts = set(re.findall(r"^\| `([\w.]+)`", tables, re.M)) - FACTS.keys() - MEASURES.keys()
    assert firsts <= keys


def test_the_schema_has_all_keys():
    schema = sweep_schema()
    assert schema["properties"].keys() == SweepFile.model_fields.keys()
    assert not schema["additionalProperties"]
    varied = schema["$defs"]["Varied"]
    assert varied["properties"].keys() == {field.alias or name for name, field in Varied.model_fields.items()}
    assert schema["properties"]["vary"]["additionalProperties"]["anyOf"][1] == {"$ref": "#/$defs/Varied"}


def test_the_example_of_the_page_is_read(study, tmp_path):
    (tmp_path / "base.yaml").write_text(yaml.safe_dump(study | {"platform": {"preset": "dgx-superpod-h100"}}))
    text = re.search(r"```yaml\n(.*?)```", PAGE.read_text(), re.S)[1]
    (tmp_path / "sweep.yaml").write_text(text.replace("network.fabric", "network.rail"))
    sweep = load_sweep(tmp_path / "sweep.yaml")
    assert sweep.space.size == 4 * (1 + 4 * 2) * 4 * 2
