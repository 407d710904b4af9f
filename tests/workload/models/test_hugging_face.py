"""Configurations of the hub: the keys that set shapes, against the published counts of their weights."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from armillary.base.errors import InputError
from armillary.workload.models import Decoder, from_hugging_face, load_model, parameters

ROPE = {"rope_theta": 1e6, "torch_dtype": "bfloat16", "hidden_act": "silu"}


def llama(
    hidden: int, layers: int, heads: int, kv_heads: int, size: int, vocabulary: int
) -> dict[str, object]:
    return ROPE | {
        "hidden_size": hidden,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "intermediate_size": size,
        "vocab_size": vocabulary,
        "max_position_embeddings": 32768,
    }


DEEPSEEK = {"n_group": 8, "moe_layer_freq": 1, "attention_bias": False, "kv_lora_rank": 512}
DEEPSEEK |= {"q_lora_rank": 1536, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128}

# Counts are those of the hub's metadata (https://huggingface.co/api/models/NAME), or of the paper where one is named.
CONFIGS = {
    "meta-llama/Meta-Llama-3-8B": (
        8_030_261_248,
        llama(4096, 32, 32, 8, 14336, 128256) | {"model_type": "llama", "head_dim": None},
    ),
    "mistralai/Mistral-7B-v0.1": (
        7_241_732_096,
        llama(4096, 32, 32, 8, 14336, 32000) | {"model_type": "mistral", "sliding_window": 4096},
    ),
    "mistralai/Mixtral-8x7B-v0.1": (
        46_702_792_704,
        llama(4096, 32, 32, 8, 14336, 32000)
        | {"model_type": "mixtral", "num_local_experts": 8, "num_experts_per_tok": 2, "sliding_window": None},
    ),
    "Qwen/Qwen2.5-7B": (
        7_615_616_512,
        llama(3584, 28, 28, 4, 18944, 152064)
        | {"model_type": "qwen2", "use_sliding_window": False, "sliding_window": 131072},
    ),
    "Qwen/Qwen3-0.6B": (
        596_049_920,
        llama(1024, 28, 16, 8, 3072, 151936)
        | {"model_type": "qwen3", "head_dim": 128, "tie_word_embeddings": True},
    ),
    "Qwen/Qwen1.5-MoE-A2.7B": (
        14_315_784_192,
        llama(2048, 24, 16, 16, 5632, 151936)
        | {"model_type": "qwen2_moe", "num_experts": 60, "num_experts_per_tok": 4}
        | {"moe_intermediate_size": 1408, "shared_expert_intermediate_size": 5632, "decoder_sparse_step": 1},
    ),
    "Qwen/Qwen3-30B-A3B": (
        30_532_122_624,
        llama(2048, 48, 32, 4, 6144, 151936)
        | {"model_type": "qwen3_moe", "head_dim": 128, "num_experts": 128, "num_experts_per_tok": 8}
        | {"moe_intermediate_size": 768, "decoder_sparse_step": 1, "mlp_only_layers": []},
    ),
    "deepseek-ai/DeepSeek-V2": (
        235_741_434_880,
        llama(5120, 60, 128, 128, 12288, 102400)
        | DEEPSEEK
        | {"model_type": "deepseek_v2", "n_routed_experts": 160, "n_shared_experts": 2}
        | {"num_experts_per_tok": 6, "moe_intermediate_size": 1536, "first_k_dense_replace": 1},
    ),
    "deepseek-ai/DeepSeek-V3": (
        671_026_419_200,
        llama(7168, 61, 128, 128, 18432, 129280)
        | DEEPSEEK
        | {"model_type": "deepseek_v3", "n_routed_experts": 256, "n_shared_experts": 1}
        | {"num_experts_per_tok": 8, "moe_intermediate_size": 2048, "first_k_dense_replace": 3},
    ),
    # Printed is 744B only: this is the sum of its shapes.
    "zai-org/GLM-5": (
        743_911_218_432,
        llama(6144, 78, 64, 64, 12288, 154880)
        | DEEPSEEK
        | {"model_type": "glm_moe_dsa", "n_routed_experts": 256, "n_shared_experts": 1}
        | {"num_experts_per_tok": 8, "moe_intermediate_size": 2048, "first_k_dense_replace": 3}
        | {"q_lora_rank": 2048, "qk_nope_head_dim": 192, "v_head_dim": 256, "n_group": 1, "topk_group": 1}
        | {"index_n_heads": 32, "index_head_dim": 128, "index_topk": 2048},
    ),
    "google/gemma-7b": (
        8_537_680_896,
        {
            **llama(3072, 28, 16, 16, 24576, 256000),
            "model_type": "gemma",
            "head_dim": 256,
            "hidden_act": "gelu",
        },
    ),
    "allenai/OLMo-2-1124-7B": (
        7_298_617_344,
        llama(4096, 32, 32, 32, 11008, 100352) | {"model_type": "olmo2", "tie_word_embeddings": False},
    ),
    "allenai/OLMoE-1B-7B-0924": (
        6_919_161_856,
        llama(2048, 16, 16, 16, 1024, 50304)
        | {"model_type": "olmoe", "num_experts": 64, "num_experts_per_tok": 8},
    ),
    "microsoft/Phi-3-mini-4k-instruct": (
        3_821_079_552,
        llama(3072, 32, 32, 32, 8192, 32064) | {"model_type": "phi3", "sliding_window": 2047},
    ),
    "bigcode/starcoder2-7b": (
        7_173_923_840,
        {"model_type": "starcoder2", "hidden_size": 4608, "num_hidden_layers": 32, "num_attention_heads": 36}
        | {"num_key_value_heads": 4, "intermediate_size": 18432, "vocab_size": 49152, "sliding_window": 4096}
        | {"hidden_act": "gelu_pytorch_tanh", "use_bias": True},
    ),
    "openai-community/gpt2": (
        124_439_808,
        {"model_type": "gpt2", "n_embd": 768, "n_layer": 12, "n_head": 12, "n_positions": 1024}
        | {"n_ctx": 1024, "vocab_size": 50257, "activation_function": "gelu_new"},
    ),
    "EleutherAI/gpt-neox-20b": (
        20_554_567_680,
        {"model_type": "gpt_neox", "hidden_size": 6144, "num_hidden_layers": 44, "num_attention_heads": 64}
        | {"intermediate_size": 24576, "vocab_size": 50432, "max_position_embeddings": 2048}
        | {"hidden_act": "gelu_fast", "tie_word_embeddings": False},
    ),
    "facebook/opt-125m": (
        125_239_296,
        {"model_type": "opt", "hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12}
        | {"ffn_dim": 3072, "vocab_size": 50272, "max_position_embeddings": 2048, "word_embed_proj_dim": 768}
        | {"do_layer_norm_before": True, "_remove_final_layer_norm": False, "activation_function": "relu"},
    ),
    "ibm-granite/granite-3.1-8b-base": (
        8_170_848_256,
        llama(4096, 40, 32, 8, 12800, 49155) | {"model_type": "granite", "tie_word_embeddings": True},
    ),
    "HuggingFaceTB/SmolLM3-3B": (
        3_075_098_624,
        llama(2048, 36, 16, 4, 11008, 128256) | {"model_type": "smollm3"},
    ),
    "stabilityai/stablelm-3b-4e1t": (
        2_795_443_200,
        llama(2560, 32, 32, 32, 6912, 50304) | {"model_type": "stablelm", "use_parallel_residual": False},
    ),
    # Without its norms after blocks, two of each layer.
    "zai-org/GLM-4-9B-0414": (
        9_400_279_040 - 2 * 40 * 4096,
        llama(4096, 40, 32, 2, 13696, 151552)
        | {"model_type": "glm4", "head_dim": 128, "attention_bias": True, "tie_word_embeddings": False},
    ),
    # Without the norm after the embedding.
    "bigscience/bloom-7b1": (
        7_069_016_064 - 2 * 4096,
        {"model_type": "bloom", "hidden_size": 4096, "n_head": 32, "n_layer": 30, "vocab_size": 250880},
    ),
    "mosaicml/mpt-7b": (
        6_649_286_656,
        {"model_type": "mpt", "d_model": 4096, "n_heads": 32, "n_layers": 32, "vocab_size": 50432}
        | {"expansion_ratio": 4, "max_seq_len": 2048, "no_bias": True, "attn_config": {"alibi": True}},
    ),
    "databricks/dbrx-base": (
        131_596_523_520,
        {"model_type": "dbrx", "d_model": 6144, "n_heads": 48, "n_layers": 40, "vocab_size": 100352}
        | {"attn_config": {"kv_n_heads": 8, "clip_qkv": 8}, "max_seq_len": 32768}
        | {"ffn_config": {"ffn_hidden_size": 10752, "moe_num_experts": 16, "moe_top_k": 4}},
    ),
    "google/vit-base-patch16-224": (
        86_567_656,
        {"model_type": "vit", "hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12}
        | {"intermediate_size": 3072, "image_size": 224, "patch_size": 16, "num_channels": 3}
        | {"architectures": ["ViTForImageClassification"], "id2label": {str(i): str(i) for i in range(1000)}},
    ),
}


def write(folder, config):
    file = folder / "config.json"
    file.write_text(json.dumps(config))
    return file


@pytest.mark.parametrize("name", CONFIGS)
def test_published_counts(name, tmp_path):
    count, config = CONFIGS[name]
    model = from_hugging_face(write(tmp_path, config))
    assert parameters(model).total == count
    assert load_model(tmp_path) == load_model(tmp_path / "config.json") == model


@pytest.mark.parametrize(
    ("name", "preset"),
    [
        ("mistralai/Mixtral-8x7B-v0.1", "mixtral-8x7b"),
        ("Qwen/Qwen3-30B-A3B", "qwen3-30b-a3b"),
        ("deepseek-ai/DeepSeek-V3", "deepseek-v3"),
        ("zai-org/GLM-5", "glm-5"),
    ],
)
def test_presets_are_these_configurations(name, preset, tmp_path):
    config = CONFIGS[name][1] | {"max_position_embeddings": load_model(preset).context}
    read, expected = from_hugging_face(write(tmp_path, config)), load_model(preset)
    only_here = {
        "name",
        "source",
        "mlp",
        "published",
    }  # a size of dense layers that are not there may be given
    assert {"attention": None} | read.model_dump(exclude=only_here | {"attention", "experts"}) == {
        "attention": None
    } | expected.model_dump(exclude=only_here | {"attention", "experts"})
    assert parameters(read) == parameters(expected)
    assert read.experts == expected.experts


LLAMA = CONFIGS["meta-llama/Meta-Llama-3-8B"][1]
FP8 = {"quant_method": "fp8", "fmt": "e4m3", "weight_block_size": [128, 128], "activation_scheme": "dynamic"}
# Files as the hub has them, but for keys that set no shape.
OTHERS = {
    "gpt-oss-120b": llama(2880, 36, 64, 8, 2880, 201088)
    | {
        "model_type": "gpt_oss", "head_dim": 64, "attention_bias": True, "num_local_experts": 128,
        "num_experts_per_tok": 4, "sliding_window": 128, "swiglu_limit": 7.0,
        "layer_types": ["sliding_attention", "full_attention"] * 18,
        "quantization_config": {"quant_method": "mxfp4", "modules_to_not_convert": ["lm_head"]},
    },
    "minimax-m2.5": llama(3072, 62, 48, 8, 1536, 200064)
    | {
        "model_type": "minimax_m2", "head_dim": 128, "num_local_experts": 256, "num_experts_per_tok": 8,
        "use_qk_norm": True, "qk_norm_type": "per_layer", "use_routing_bias": True, "quantization_config": FP8,
    },
    "kimi-k2": llama(7168, 61, 64, 64, 18432, 163840)
    | DEEPSEEK
    | {"model_type": "kimi_k2", "n_routed_experts": 384, "n_shared_experts": 1, "num_experts_per_tok": 8}
    | {"moe_intermediate_size": 2048, "first_k_dense_replace": 1, "n_group": 1, "topk_group": 1}
    | {"quantization_config": FP8},
    "gemma-3-4b": {
        "model_type": "gemma3",
        "text_config": {
            "model_type": "gemma3_text", "hidden_size": 2560, "intermediate_size": 10240, "num_hidden_layers": 34,
            "sliding_window": 1024,
        },
        "vision_config": {"hidden_size": 1152, "model_type": "siglip_vision_model"},
    },
    "llama-4-maverick": {
        "model_type": "llama4",
        "text_config": llama(5120, 48, 40, 8, 8192, 202048)
        | {
            "model_type": "llama4_text", "head_dim": 128, "intermediate_size_mlp": 16384, "num_local_experts": 128,
            "num_experts_per_tok": 1, "interleave_moe_layer_step": 2, "attention_chunk_size": 8192,
            "no_rope_layers": [],
        },
    },
}  # fmt: skip


@pytest.mark.parametrize("name", OTHERS)
def test_configurations_give_the_preset(name, tmp_path):
    found, preset = from_hugging_face(write(tmp_path, OTHERS[name])), load_model(name)
    aside = {"name", "source", "mlp", "context"}
    assert found.model_dump(exclude=aside, exclude_none=True) == preset.model_dump(
        exclude=aside, exclude_none=True
    )
    assert parameters(found) == parameters(preset)


GROUP = {"num_bits": 8, "type": "float", "strategy": "tensor"}
COMPRESSED = {"quant_method": "compressed-tensors"}
NVFP4 = {"quant_method": "modelopt", "quant_algo": "NVFP4", "kv_cache_quant_algo": "FP8"}


@pytest.mark.parametrize(
    ("quantised", "expected"),
    [
        (FP8, {"gemms": "fp8", "scales": "block"}),
        ({"quant_method": "fp8"}, {"gemms": "fp8", "scales": "tensor"}),
        ({"quant_method": "awq", "bits": 4}, {"gemms": "bf16", "weights": "fp4"}),
        ({"quant_method": "gptq", "bits": 8}, {"gemms": "bf16", "weights": "fp8"}),
        (NVFP4, {"gemms": "fp4", "cache": "fp8"}),
        (
            COMPRESSED | {"config_groups": {"g": {"weights": GROUP, "input_activations": GROUP}}},
            {"gemms": "fp8", "scales": "tensor"},
        ),
        (
            COMPRESSED | {"config_groups": {"g": {"weights": GROUP | {"num_bits": 4}}}},
            {"gemms": "bf16", "weights": "fp4"},
        ),
        # Not modelled: only the method is known.
        ({"quant_method": "fp8", "weight_block_size": [64, 64]}, {}),
        ({"quant_method": "bitsandbytes", "load_in_4bit": True}, {}),
        (COMPRESSED | {"config_groups": [7]}, {}),
    ],
)  # fmt: skip
def test_how_weights_are_quantised(quantised, expected, tmp_path):
    found = from_hugging_face(write(tmp_path, LLAMA | {"quantization_config": quantised}))
    assert found.published.model_dump(exclude_none=True) == {"method": quantised["quant_method"], **expected}


def test_windows(tmp_path):
    mistral = from_hugging_face(write(tmp_path, CONFIGS["mistralai/Mistral-7B-v0.1"][1]))
    assert isinstance(mistral, Decoder) and mistral.attention.window == 4096
    config = CONFIGS["Qwen/Qwen2.5-7B"][1]
    assert from_hugging_face(write(tmp_path, config)).attention.window is None
    used = config | {"use_sliding_window": True, "max_window_layers": 21}
    attention = from_hugging_face(write(tmp_path, used)).attention
    assert (attention.window, attention.full_layers) == (131072, 21)


def test_a_bare_vision_model_has_a_pooler_and_no_classifier(tmp_path):
    config = CONFIGS["google/vit-base-patch16-224"][1] | {"architectures": ["ViTModel"]}
    # 86,389,248 is the published count of google/vit-base-patch16-224-in21k.
    assert parameters(from_hugging_face(write(tmp_path, config))).total == 86_389_248


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (LLAMA | {"model_type": "lama"}, "model_type: got 'lama', expected one of llama,"),
        (LLAMA | {"model_type": "lama"}, "did you mean 'llama'?"),
        (LLAMA | {"quantization_config": 8}, "quantization_config: got 8, expected a mapping"),
        ({}, "missing key 'model_type'"),
        ({key: LLAMA[key] for key in LLAMA if key != "vocab_size"}, "missing key 'vocab_size'"),
        (LLAMA | {"hidden_size": "4096"}, "hidden_size: got '4096', expected a whole number"),
        (LLAMA | {"num_attention_heads": 0}, "num_attention_heads: got 0"),
        (LLAMA | {"num_key_value_heads": 5}, "got 32 heads for 5 kv_heads"),
        (LLAMA | {"num_hidden_layers": 10**9}, "layers: "),
        (LLAMA | {"tie_word_embeddings": 1}, "expected true or false"),
        (LLAMA | {"hidden_act": "relu2"}, "hidden_act: got 'relu2'"),
        (LLAMA | {"hidden_act": ["silu"]}, "hidden_act: got ['silu']"),
        (CONFIGS["deepseek-ai/DeepSeek-V3"][1] | {"moe_layer_freq": 2}, "moe_layer_freq: got 2, expected 1"),
        (CONFIGS["mosaicml/mpt-7b"][1] | {"no_bias": False}, "no_bias: got False, expected True"),
        (CONFIGS["databricks/dbrx-base"][1] | {"ffn_config": 4}, "ffn_config: got 4, expected a mapping"),
        (CONFIGS["facebook/opt-125m"][1] | {"word_embed_proj_dim": 512}, "word_embed_proj_dim: got 512"),
        (CONFIGS["Qwen/Qwen3-30B-A3B"][1] | {"mlp_only_layers": [3]}, "mlp_only_layers: got [3]"),
        (CONFIGS["Qwen/Qwen3-30B-A3B"][1] | {"mlp_only_layers": "3"}, "mlp_only_layers: got '3'"),
        (CONFIGS["google/vit-base-patch16-224"][1] | {"patch_size": 15}, "multiple of patch"),
    ],
)
def test_bad_configurations(config, message, tmp_path):
    with pytest.raises(InputError) as caught:
        from_hugging_face(write(tmp_path, config))
    assert message in str(caught.value)


anything = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)


@given(st.data())
def test_any_value_is_read_or_refused(tmp_path_factory, data):
    config = dict(data.draw(st.sampled_from([config for _, config in CONFIGS.values()])))
    config[data.draw(st.sampled_from(sorted(config)))] = data.draw(anything)
    try:
        model = from_hugging_face(write(tmp_path_factory.getbasetemp(), config))
    except InputError:
        return
    assert parameters(model).total > 0


@pytest.mark.parametrize(
    ("wrong", "meant"),
    [
        ("num_key_value_head", "num_key_value_heads"),
        ("num_hidden_layer", "num_hidden_layers"),
        ("quantization_confg", "quantization_config"),
        ("tie_word_embedding", "tie_word_embeddings"),
    ],
)
def test_a_misspelt_key_does_not_leave_its_default(wrong: str, meant: str) -> None:
    config = llama(4096, 32, 32, 8, 14336, 128256) | {"model_type": "llama"}
    config[wrong] = config.pop(meant, False)
    with pytest.raises(InputError, match=f"did you mean '({meant}|{wrong})'"):
        from_hugging_face(config)


def test_keys_of_other_things_are_no_typos() -> None:
    config = llama(4096, 32, 32, 8, 14336, 128256) | {"model_type": "llama", "max_window_layers": 21}
    others = {"attention_dropout": 0.0, "attn_bias": False, "qkv_bias": False, "pretraining_tp": 1}
    assert from_hugging_face(config | others).kind == "decoder"
