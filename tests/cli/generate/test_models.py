"""`armillary generate list` and `show`."""

from __future__ import annotations

import json

import pytest

from armillary.workload.models import preset_names


def test_list(inputs, call):
    lines = call("generate list").stdout.splitlines()
    assert lines[0].split() == ["name", "kind", "parameters", "layers", "hidden", "heads", "source"]
    assert [line.split()[0] for line in lines[2:]] == preset_names()
    assert "8,030,261,248       32    4,096      32" in "".join(lines)
    found = {each["name"]: each for each in json.loads(call("generate list --json -").stdout)}
    assert list(found) == preset_names()
    assert found["resnet-152"]["layers"] == 152 and found["resnet-152"]["heads"] is None
    assert found["deepseek-v3"]["active_parameters"] == 37_552_297_472


@pytest.mark.parametrize("name", preset_names())
def test_show(name, inputs, call):
    result = call(f"generate show {name}")
    assert result.exit_code == 0, result.output
    found = json.loads(call(f"generate show {name} --json -").stdout)
    counts, work = found["parameters"], found["flops"]
    assert f"{counts['total']:,}" in result.stdout
    assert counts["total"] == sum(counts.values()) - counts["total"] - counts["active"]
    assert work["forward"] == sum(work["parts"].values())
    assert work["training"] == 3 * work["forward"]


def test_tables_of_unknown_size_are_named(inputs, call):
    assert "64 embedding tables are not counted" in call("generate show dlrm-libra").stdout
    assert "not counted" not in call("generate show dlrm-mlperf").stdout


def test_names_of_layers_are_shown_as_they_are(inputs, call):
    layers = '[{name: "a [red] layer", gemm: {n: 2, k: 3}}]'
    (inputs / "odd.yaml").write_text(f'kind: stack\nname: "odd\\e[31m"\nlayers: {layers}\n')
    shown = call("generate show odd.yaml").stdout
    assert "a [red] layer" in shown and "odd\\x1b[31m (stack)" in shown


def test_options(inputs, call):
    words = "generate show llama-3-8b --batch 2 --sequence 128 --recompute full --causal"
    work = json.loads(call(f"{words} --json -").stdout)["flops"]
    assert (work["batch"], work["sequence"], work["causal"]) == (2, 128, True)
    assert work["recomputed"] == work["forward"] - work["parts"]["head"]
    shown = call(words).stdout
    assert "operations, batch 2, sequence 128" in shown and "recomputed (full)" in shown


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("show llama-3-9b", "did you mean 'llama-3-8b'?"),
        ("show study.yaml", "study.yaml: missing key 'kind'"),
        ("show system.json", "system.json: missing key 'model_type'"),
        ("show llama-3-8b --batch 0", "batch 0"),
        ("show vit-b-16 --sequence 5", "kind 'vit' has none"),
        ("show resnet-50 --recompute selective", "expected none or full"),
        ("shwo", "did you mean 'show'?"),
    ],
)
def test_bad_input(words, message, inputs, call):
    result = call(f"generate {words}")
    assert result.exit_code == 2 and message in result.stderr and result.stderr.count("\n") == 1
