"""Model files of our own: what is refused, and how; stacks and translators that are not presets."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from armillary.base.errors import InputError
from armillary.workload.models import (
    flops,
    layer_flops,
    load_model,
    parameters,
    preset_named,
    preset_names,
    read_model,
)
from armillary.workload.models.read import PRESETS

PRESET = yaml.safe_load((PRESETS / "mixtral-8x7b.yaml").read_text())
STACK = """\
kind: stack
name: two layers
layers:
  - {name: product, repeat: 3, gemm: {m: 5, n: 7, k: 11, bias: true}}
  - conv2d: {inputs: 4, outputs: 6, height: 9, width: 8, kernel: 3, stride: 2, padding: 1, groups: 2, bias: true}
"""


def test_stack(tmp_path):
    file = tmp_path / "stack.yaml"
    file.write_text(STACK)
    model = load_model(file)
    assert parameters(model).parts == {"mlp": 3 * (11 + 1) * 7, "convolution": 9 * 2 * 6 + 6}
    work = flops(model, 2)
    # (9 + 2 - 3) // 2 + 1 rows and (8 + 2 - 3) // 2 + 1 columns
    assert work.parts == {"product": 2 * 2 * 3 * 5 * 7 * 11, "layer 1": 2 * 2 * 9 * 2 * 6 * 5 * 4}
    assert flops(model, 2, recomputation="full").recomputed == work.forward


def test_translator_grows_with_sequence():
    model = load_model("gnmt")
    one, two = (flops(model, 1, sequence).parts for sequence in (10, 20))
    assert two["attention scores"] == 4 * one["attention scores"]
    assert all(two[part] == 2 * one[part] for part in one if part != "attention scores")
    apart = model.model_copy(update={"shared_embedding": False})
    assert parameters(apart).total - parameters(model).total == 32320 * 1024


def test_dot_interaction():
    model = load_model("dlrm-mlperf")
    assert flops(model, 4).parts["interaction"] == 2 * 4 * 27 * 27 * 128
    assert "interaction" not in flops(load_model("dlrm-libra"), 4).parts


def test_presets_by_path_and_by_name():
    for name in preset_names():
        assert (
            load_model(name)
            == load_model(PRESETS / f"{name}.yaml")
            == load_model(str(PRESETS / f"{name}.yaml"))
        )


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"hiden": 1}, "hiden: unknown key (did you mean 'hidden'?)"),
        ({"attention": {"heads": 8, "kv_head": 2}}, "kv_head: unknown key (did you mean 'kv_heads'?)"),
        ({"attention": {"heads": 8, "kv_heads": 3}}, "got 8 heads for 3 kv_heads, expected a multiple"),
        ({"attention": {"heads": 7}}, "got hidden 4096 for 7 heads"),
        (
            {"attention": {"heads": 8, "latent": {"kv_rank": 1}}},
            "missing key 'plain_size' in attention.latent",
        ),
        ({"experts": {"count": 8, "top_k": 9, "size": 1}}, "got top_k 9 of 8 experts, expected at most 8"),
        ({"experts": {"count": 8, "top_k": 2, "size": 1, "dense_first": 1}}, "expected mlp"),
        ({"experts": {"count": 8, "top_k": 2, "size": 1, "shared_gate": True}}, "with shared experts only"),
        ({"experts": {"count": 8, "top_k": 2, "size": 1, "capacity_factor": 0}}, "capacity_factor: got 0"),
        ({"layers": 0}, "layers: got 0, expected 1 or more"),
        ({"layers": 2_000_000_000}, "layers: got 2000000000, expected 100000 or less"),
        ({"layers": "32"}, "layers: got '32', expected a whole number"),
        ({"norm": "rsm"}, "did you mean 'rms'?"),
        ({"kind": "decodr"}, "did you mean 'decoder'?"),
        ({"kind": ["decoder"]}, "kind: got ['decoder'], expected one of decoder"),
    ],
)
def test_bad_files(change, message, tmp_path):
    file = tmp_path / "bad.yaml"
    file.write_text(yaml.safe_dump(PRESET | change))
    with pytest.raises(InputError) as caught:
        load_model(file)
    assert message in str(caught.value) and str(file) in str(caught.value)
    with pytest.raises(InputError, match="model file"):
        read_model({"kind": "decoder"} | {"name": 3} | change | {"kind": 1})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "expected a mapping"),
        ("kind: [", "not valid YAML"),
        ("name: x", "missing key 'kind'"),
        (
            "kind: vit\nname: x\nimage: 5\npatch: 2\nlayers: 1\nhidden: 4\nheads: 2\nmlp: 4\nclasses: 1",
            "multiple",
        ),
        ("kind: resnet\nname: x\nimage: 99999\nblocks: [1]\nclasses: 1", "image: got 99999"),
        ("kind: stack\nname: x\nlayers: [{repeat: 2}]", "expected either gemm or conv2d"),
        (STACK.replace("groups: 2", "groups: 3"), "expected multiples of 3 groups"),
        (STACK.replace("kernel: 3", "kernel: 30"), "got kernel 30"),
        (
            "kind: dlrm\nname: x\ndense_features: 1\nbottom: [2]\ntop: [1]\ninteraction: dot\ntables: [{size: 3}]",
            "got sizes 2, 3, expected one",
        ),
    ],
)
def test_bad_texts(text, message, tmp_path):
    file = tmp_path / "bad.yaml"
    file.write_text(text)
    with pytest.raises(InputError) as caught:
        load_model(file)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("lama-3-8b", "did you mean 'llama-3-8b'?"),
        ("xyzzy", "generate list"),
        ("no/such", "no such file"),
        ("none.yaml", "no such file"),
        ("none.json", "no such file"),
        ("a\0b", "model 'a\\x00b'"),
        (Path("lama-3-8b"), "did you mean 'llama-3-8b'?"),
    ],
)
def test_no_such_model(name, message):
    with pytest.raises(InputError) as caught:
        load_model(name)
    assert message in str(caught.value)


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)


@given(st.data())
def test_any_value_is_read_or_refused(data):
    document = yaml.safe_load((PRESETS / f"{data.draw(st.sampled_from(preset_names()))}.yaml").read_text())
    inner = data.draw(
        st.sampled_from([document, *(each for each in document.values() if isinstance(each, dict))])
    )
    inner[data.draw(st.sampled_from(sorted(inner)))] = data.draw(anything)
    try:
        model = read_model(document)
    except InputError:
        return
    assert parameters(model).total > 0 and flops(model, 1, recomputation="full").training > 0


def test_an_empty_folder(tmp_path):
    with pytest.raises(InputError, match=r"config\.json: no such file"):
        load_model(Path(tmp_path))


@pytest.mark.parametrize(
    ("name", "arguments", "message"),
    [
        ("gpt-3-175b", {"batch": 0}, "batch 0: expected at least 1"),
        ("gpt-3-175b", {"sequence": 0}, "sequence 0: expected at least 1"),
        ("gpt-3-175b", {"sequence": 2049}, "sequence 2049: expected at most 2048"),
        ("resnet-50", {"sequence": 9}, "kind 'resnet' has none"),
        ("resnet-50", {"recomputation": "selective"}, "expected none or full"),
        ("vit-b-16", {"causal": True}, "no causal mask"),
        ("gnmt", {"recomputation": "ful"}, "did you mean 'full'?"),
    ],
)
def test_bad_requests(name, arguments, message):
    with pytest.raises(InputError) as caught:
        flops(load_model(name), **{"batch": 1} | arguments)
    assert message in str(caught.value)


def test_no_such_layer():
    with pytest.raises(InputError, match="layer 32 of 'Llama 2 7B': expected 0 to 31"):
        layer_flops(load_model("llama-2-7b"), 32, 1)


@pytest.mark.parametrize(
    ("name", "preset"),
    [
        ("meta-llama/Llama-3.3-70B-Instruct", "llama-3.1-70b"),
        ("Meta-Llama-3-8B", "llama-3-8b"),
        ("llama3-70b", "llama-3-70b"),
        ("LLAMA-3.1-405B", "llama-3-405b"),
        ("gpt3", "gpt-3-175b"),
        ("deepseek-ai/DeepSeek-R1", "deepseek-v3"),
        ("mistralai/Mixtral-8x7B-v0.1", "mixtral-8x7b"),
    ],
)
def test_published_names_mean_presets(name: str, preset: str) -> None:
    assert load_model(name) == load_model(preset)


def test_a_name_means_one_preset() -> None:
    assert [preset_named(name) for name in preset_names()] == preset_names()
    assert preset_named("llama-3.1-7b") is None


def test_a_file_goes_before_a_published_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "gpt3").write_text(STACK)
    assert load_model("gpt3", tmp_path).name == "two layers"
    monkeypatch.chdir(tmp_path)
    assert load_model("gpt3").name == "two layers"


@pytest.mark.parametrize("name", ["", " "])
def test_an_empty_name_is_no_model(name):
    with pytest.raises(InputError, match=r"model: got ' ?', expected its name or file"):
        load_model(name)
