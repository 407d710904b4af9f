"""Recipes of MaxText as studies."""

from __future__ import annotations

import pytest

from armillary.base.errors import InputError
from armillary.evidence.validate.run import plan
from armillary.evidence.validate.training import maxtext

HEADER = "file\tseconds\ttflops_per_device\ttokens_per_s_device\ttokens_per_step\n"
PAGE = """# Instructions for training Llama2-70B on TPU trillium

    python3 -m benchmarks.benchmark_runner --device_type=v6e-256 --num_slices={slices} --model_name="x"

    completed step: 16, seconds: 8.192, TFLOP/s/device: 4.2, Tokens/s/device: 1000.0, total_weights: {total}, loss: 1

    MaxTextModel(
        model_type="{model}",
        tuning_params={{
            "per_device_batch_size": 2,
            "ici_fsdp_parallelism": {fsdp},
            "ici_tensor_parallelism": {tp},
            "remat_policy": "custom",
            "decoder_layer_input": "offload",
            "query_proj": "offload",
            "value_proj": "device",
            "key_proj": "remat",
            "max_target_length": 4096,
        }},
    )
"""


def page(**values):
    return PAGE.format(
        **{"slices": 1, "total": 256 * 8192, "model": "llama2-70b", "fsdp": -1, "tp": 1, **values}
    )


def one(tmp_path, text):
    (tmp_path / "page.md").write_text(text)
    (case,) = maxtext.cases(tmp_path / "page.md")
    return case


def test_page_of_a_recipe(tmp_path):
    case = one(tmp_path, page())
    assert case.npus == 256 and case.machine == "tpu-v6e" and case.seconds() == pytest.approx(8.192)
    assert case.plan["data"] == {"sharding": "fsdp"} and case.plan["batch"] == 512
    assert case.plan["keep"] == ["q", "v"] and case.model.layers == 80


def test_axes(tmp_path):
    assert one(tmp_path, page(tp=4, fsdp=64)).plan["parallel"]["tp"] == 4
    two = one(tmp_path, page(slices=2, total=512 * 8192))
    assert two.npus == 512 and two.plan["data"] == {"sharding": "hsdp", "shard": 256}
    assert "ici axes" in one(tmp_path, page(fsdp=64)).reason
    assert "no model 'llama9-1b'" in one(tmp_path, page(model="llama9-1b").replace("Llama2-70B", "it")).reason
    assert "devices" in one(tmp_path, page(total=1_020_000)).reason
    assert "no TPU is named" in one(tmp_path, page().replace("v6e", "v2").replace("trillium", "")).reason


def test_the_log_counts_where_settings_differ(tmp_path):
    case = one(tmp_path, page().replace('batch_size": 2', 'batch_size": 3'))
    assert case.plan["batch"] == 512 and any("the settings say 3" in text for text in case.assumed)


def test_list_of_recipes(tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "README.md").write_text(page())
    rows = "a/README.md\t8.192\t4.2\t1000.0\t2097152\n\nb/README.md\t1\t1\t1\t1\n../x.md\t1\t1\t1\t1\n"
    path = tmp_path / "steps.tsv"
    path.write_text(HEADER + rows)
    first, lost, outside = maxtext.cases(path)
    assert first.npus == 256 and "no page 'b/README.md'" in lost.reason and outside.model is None
    assert [job.suite.name for job in plan(data=[path])[0]] == ["maxtext"]
    assert [job.suite.name for job in plan(data=[tmp_path / "a" / "README.md"])[0]] == ["maxtext"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("file\tseconds\n", "no column 'tokens_per_s_device'"),
        (HEADER + "a\t1\n", "steps.tsv:2: 2 cells, expected 5"),
        (HEADER + "a\tx\t1\t1\t1\n", "steps.tsv:2: seconds: got 'x', expected a number above 0"),
        (HEADER + "a\tinf\t1\t1\t1\n", "seconds: got 'inf'"),
    ],
)
def test_bad_lists(tmp_path, text, said):
    path = tmp_path / "steps.tsv"
    path.write_text(text)
    with pytest.raises(InputError, match=said):
        list(maxtext.cases(path))


def test_page_without_a_step(tmp_path):
    with pytest.raises(InputError, match="states no step time"):
        one(tmp_path, "# Recipe\n")


@pytest.mark.shared
def test_published_recipes(shared):
    found = list(maxtext.cases(shared / "measured/tpu/steps.tsv"))
    assert found and all(case.model is not None for case in found)
    pages = {case.label: case for case in found}
    for label, case in pages.items():
        (alone,) = maxtext.cases(shared / "measured/tpu" / label)
        assert alone.plan == case.plan and alone.npus == case.npus
