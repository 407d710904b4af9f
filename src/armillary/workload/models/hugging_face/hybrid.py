"""Models of which some layers have a linear mixer in place of attention."""

from __future__ import annotations

from typing import Any

from armillary.workload.models.hugging_face.configuration import Built, Configuration
from armillary.workload.models.hugging_face.llama import qwen3, qwen_experts
from armillary.workload.models.schema import Decoder


def qwen3_next(config: Configuration) -> Built:
    """Build Qwen3-Next without the module that predicts further tokens."""
    model, data = qwen3(config)
    shared = config.whole("shared_expert_intermediate_size")
    data["attention"]["gate"] = True
    data["linear"] = {
        "kind": "gated-delta",
        "heads": config.whole("linear_num_value_heads"),
        "key_heads": config.whole("linear_num_key_heads"),
        "key_size": config.whole("linear_key_head_dim"),
        "value_size": config.whole("linear_value_head_dim"),
        "conv": config.whole("linear_conv_kernel_dim", 4),
    }
    every = config.whole("full_attention_interval", 4)
    kinds = [
        "full_attention" if (layer + 1) % every == 0 else "linear_attention"
        for layer in range(data["layers"])
    ]
    if config.given("layer_types"):
        config.only("layer_types", kinds, f"of every {every} layers the last has attention")
    data["full_every"] = every
    return model, data | qwen_experts(config, {"shared": 1, "shared_size": shared, "shared_gate": True})


def nemotron_h(config: Configuration) -> Built:
    """Build Nemotron-H or Nemotron 3, whose layers have one block each, without modules for further tokens."""
    layout = _layout(config)
    bias = config.true("mlp_bias", False)
    data: dict[str, Any] = {
        "layers": config.whole("num_hidden_layers", len(layout)),
        "hidden": config.whole("hidden_size"),
        "vocabulary": config.whole("vocab_size"),
        "context": config.whole("max_position_embeddings", 4096),
        "tied": config.true("tie_word_embeddings", False),
        "norm": "rms",
        # Squared ReLU: one input projection.
        "activation": "relu",
        "attention": {
            "heads": config.whole("num_attention_heads"),
            "kv_heads": config.whole("num_key_value_heads"),
            "head_size": config.whole("head_dim", 128),
            "bias": "all" if config.true("attention_bias", False) else "none",
        },
        "layout": layout,
    }
    if "M" in layout:
        data["linear"] = {
            "kind": "mamba-2",
            "heads": config.whole("mamba_num_heads"),
            "key_heads": config.whole("n_groups", 8),
            "key_size": config.whole("ssm_state_size", 128),
            "value_size": config.whole("mamba_head_dim"),
            "conv": config.whole("conv_kernel", 4),
            "chunk": config.whole("chunk_size", 128),
        }
    if "-" in layout:
        data["mlp"] = {"size": config.whole("intermediate_size"), "bias": bias}
    if "E" in layout:
        data["experts"] = {
            "count": config.whole("n_routed_experts"),
            "top_k": config.whole("num_experts_per_tok"),
            "size": config.whole("moe_intermediate_size"),
            "shared": config.whole("n_shared_experts", 1, low=0),
            "shared_size": config.whole("moe_shared_expert_intermediate_size"),
            "router_bias": True,
            "bias": bias,
        }
        if config.given("moe_latent_size"):
            data["experts"]["latent"] = config.whole("moe_latent_size")
    return Decoder, data


LETTERS = {"mamba": "M", "attention": "*", "moe": "E", "mlp": "-"}
"""Word of ``layers_block_type`` -> letter of ``hybrid_override_pattern``; a file has either."""


def _layout(config: Configuration) -> str:
    """Return a letter for each layer."""
    kinds = config.value("layers_block_type")
    if kinds is None:
        return str(
            config.document.require("hybrid_override_pattern", "a letter for each layer, such as MEM*")
        )
    if not isinstance(kinds, list) or not kinds or any(each not in LETTERS for each in kinds):
        config.document.reject(("layers_block_type",), kinds, f"a list of {', '.join(LETTERS)}")
    return "".join(LETTERS[each] for each in kinds)
