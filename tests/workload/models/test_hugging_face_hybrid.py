"""Configurations of models of which some layers have a linear mixer, or one block each."""

from __future__ import annotations

import json

import pytest

from armillary.base.errors import InputError
from armillary.workload.models import Decoder, from_hugging_face, load_model, parameters

ROPE = {"rope_theta": 1e6, "torch_dtype": "bfloat16", "hidden_act": "silu"}
LINEAR = {
    "qwen3-next-80b-a3b": ROPE | {
        "model_type": "qwen3_next", "hidden_size": 2048, "num_hidden_layers": 48, "num_attention_heads": 16,
        "num_key_value_heads": 2, "head_dim": 256, "intermediate_size": 5120, "vocab_size": 151936,
        "max_position_embeddings": 262144, "linear_num_value_heads": 32, "linear_num_key_heads": 16,
        "linear_key_head_dim": 128, "linear_value_head_dim": 128, "linear_conv_kernel_dim": 4,
        "full_attention_interval": 4, "num_experts": 512, "num_experts_per_tok": 10, "moe_intermediate_size": 512,
        "shared_expert_intermediate_size": 512, "decoder_sparse_step": 1, "mlp_only_layers": [],
    },
    "nemotron-3-nano": {
        "model_type": "nemotron_h", "hidden_size": 2688, "num_hidden_layers": 52, "num_attention_heads": 32,
        "num_key_value_heads": 2, "head_dim": 128, "vocab_size": 131072, "max_position_embeddings": 262144,
        "hybrid_override_pattern": "MEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEMEM*EMEMEMEME", "mamba_num_heads": 64,
        "mamba_head_dim": 64, "ssm_state_size": 128, "n_groups": 8, "conv_kernel": 4, "chunk_size": 128,
        "n_routed_experts": 128, "num_experts_per_tok": 6, "moe_intermediate_size": 1856, "n_shared_experts": 1,
        "moe_shared_expert_intermediate_size": 3712, "intermediate_size": 1856, "attention_bias": False,
    },
}  # fmt: skip
LINEAR["nemotron-3-super"] = LINEAR["nemotron-3-nano"] | {
    "hidden_size": 4096, "num_hidden_layers": 88, "mamba_num_heads": 128, "n_routed_experts": 512,
    "hybrid_override_pattern":
        "MEMEMEM*EMEMEMEM*EMEMEMEM*EMEMEMEMEM*EMEMEMEMEM*EMEMEMEMEM*EMEMEMEMEM*EMEMEMEM*EMEMEMEME",
    "num_experts_per_tok": 22, "moe_intermediate_size": 2688, "moe_latent_size": 1024,
    "moe_shared_expert_intermediate_size": 5376, "num_nextn_predict_layers": 1, "mtp_hybrid_override_pattern": "*E",
}  # fmt: skip


def test_a_list_of_kinds_is_a_layout() -> None:
    config = LINEAR["nemotron-3-super"] | {"layers_block_type": ["mamba", "moe", "attention", "mlp"]}
    del config["hybrid_override_pattern"], config["num_hidden_layers"]
    found = from_hugging_face(config)
    assert isinstance(found, Decoder) and (found.layout, found.layers) == ("ME*-", 4)
    with pytest.raises(InputError, match="layers_block_type"):
        from_hugging_face(config | {"layers_block_type": ["mamba", "moes"]})


@pytest.mark.parametrize("name", LINEAR)
def test_linear_layers_are_those_of_the_preset(name: str, tmp_path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(LINEAR[name]))
    found, preset = from_hugging_face(tmp_path), load_model(name)
    assert isinstance(found, Decoder) and isinstance(preset, Decoder)
    # Qwen's file names the size of a dense block, which no layer has.
    aside = {"name", "source", "mlp"}
    assert found.model_dump(exclude=aside) == preset.model_dump(exclude=aside)
    assert parameters(found) == parameters(preset)


def test_other_places_of_attention_are_refused(tmp_path) -> None:
    kinds = ["full_attention", *["linear_attention"] * 47]
    (tmp_path / "config.json").write_text(json.dumps(LINEAR["qwen3-next-80b-a3b"] | {"layer_types": kinds}))
    with pytest.raises(InputError, match="of every 4 layers the last has attention"):
        from_hugging_face(tmp_path)
