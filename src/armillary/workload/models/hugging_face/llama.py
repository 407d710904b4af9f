"""Llama and its descendants: each changes the dictionary of its parent."""

from __future__ import annotations

from typing import Any

from armillary.workload.models.hugging_face.configuration import Built, Configuration
from armillary.workload.models.schema import Decoder


def llama(config: Configuration, *, bias: str = "none", tied: bool = False, act: str = "hidden_act") -> Built:
    """Build what Llama and its descendants share.

    Args:
        config: The configuration.
        bias: Which projections have one though no key says so.
        tied: Whether the head is the embedding unless a key says otherwise.
        act: The key of the activation.
    """
    heads = config.whole("num_attention_heads")
    return Decoder, {
        "layers": config.whole("num_hidden_layers"),
        "hidden": config.whole("hidden_size"),
        "vocabulary": config.whole("vocab_size"),
        "context": config.whole("max_position_embeddings", 2048),
        "tied": config.true("tie_word_embeddings", tied),
        "norm": "rms",
        "activation": config.activation(act, "silu", gated=True),
        "attention": {
            "heads": heads,
            "kv_heads": config.whole("num_key_value_heads", heads),
            # Some models project to more or fewer elements than the hidden size, and say so here.
            "head_size": config.optional("head_dim"),
            "bias": "all" if config.true("attention_bias", False) else bias,
        },
        "mlp": {"size": config.whole("intermediate_size"), "bias": config.true("mlp_bias", False)},
    }


def mistral(config: Configuration) -> Built:
    """Build Mistral, or another Llama with a window in all layers."""
    model, data = llama(config)
    # null means no window, as from Mistral v0.2 on.
    data["attention"]["window"] = config.optional("sliding_window")
    return model, data


def smollm3(config: Configuration) -> Built:
    """Build SmolLM 3, a Llama of which some layers have no positions."""
    return llama(config, tied=True)


def stablelm(config: Configuration) -> Built:
    """Build StableLM: a Llama with layer norms."""
    config.only("use_parallel_residual", False, "attention before the feed-forward block")
    config.only("qk_layernorm", False, "no norm over heads")
    model, data = llama(config, bias="qkv" if config.true("use_qkv_bias", False) else "none")
    return model, data | {"norm": "layer"}


def glm4(config: Configuration) -> Built:
    """Build GLM-4 without its norms after blocks."""
    model, data = llama(config)
    data["attention"]["bias"] = "qkv" if config.true("attention_bias", False) else "none"
    return model, data


def mixtral(config: Configuration) -> Built:
    """Build Mixtral, or another Llama whose layers all have experts."""
    model, data = mistral(config)
    data["experts"] = {
        "count": config.whole("num_local_experts"),
        "top_k": config.whole("num_experts_per_tok"),
        # Mixtral's ``intermediate_size`` is that of an expert, and no layer is dense.
        "size": data.pop("mlp")["size"],
    }
    return model, data


def qwen2(config: Configuration) -> Built:
    """Build Qwen 2 or 2.5."""
    # Qwen2 has the three biases hard-coded, without a key.
    model, data = llama(config, bias="qkv")
    _qwen_window(config, data)
    return model, data


def qwen3(config: Configuration) -> Built:
    """Build Qwen 3."""
    model, data = llama(config)
    data["attention"] |= {"qk_norm": True, "head_size": config.whole("head_dim", 128)}
    _qwen_window(config, data)
    return model, data


def _qwen_window(config: Configuration, data: dict[str, Any]) -> None:
    # The window applies from layer ``max_window_layers`` on, and only if it is switched on.
    if config.true("use_sliding_window", False) and config.given("sliding_window"):
        data["attention"]["window"] = config.whole("sliding_window")
        data["attention"]["full_layers"] = config.whole("max_window_layers", low=0)


def qwen2_moe(config: Configuration) -> Built:
    """Build Qwen 1.5 or 2 with experts."""
    model, data = qwen2(config)
    shared = config.whole("shared_expert_intermediate_size")
    return model, data | qwen_experts(config, {"shared": 1, "shared_size": shared, "shared_gate": True})


def qwen3_moe(config: Configuration) -> Built:
    """Build Qwen 3 with experts."""
    model, data = qwen3(config)
    return model, data | qwen_experts(config, {})


def qwen_experts(config: Configuration, shared: dict[str, Any]) -> dict[str, Any]:
    """Return the key ``experts`` of a Qwen; `shared`: keys of its shared experts."""
    # The schema has a number of dense layers at the start; other places cannot be described.
    dense = config.value("mlp_only_layers") or []
    if dense != list(range(len(dense)) if isinstance(dense, list) else ()):
        config.document.reject(("mlp_only_layers",), dense, "the first layers only, e.g. [0, 1]")
    return {
        "experts": {
            "count": config.whole("num_experts"),
            "top_k": config.whole("num_experts_per_tok"),
            "size": config.whole("moe_intermediate_size"),
            "every": config.whole("decoder_sparse_step", 1),
            "dense_first": len(dense),
            **shared,
        }
    }


def olmo2(config: Configuration) -> Built:
    """Build OLMo 2, whose norms stand after the blocks: they are as many."""
    model, data = llama(config)
    data["attention"] |= {"qk_norm": True, "qk_norm_over": "all"}
    return model, data


def olmoe(config: Configuration) -> Built:
    """Build OLMoE: all layers have experts, whose size is ``intermediate_size``."""
    model, data = olmo2(config)
    return model, data | {
        "experts": {
            "count": config.whole("num_experts"),
            "top_k": config.whole("num_experts_per_tok"),
            "size": data.pop("mlp")["size"],
        }
    }


def minimax_m2(config: Configuration) -> Built:
    """Build MiniMax M2 without the layers that predict further tokens."""
    model, data = mixtral(config)
    over = config.value("qk_norm_type", "per_layer") == "per_layer"
    data["attention"] |= {
        "qk_norm": config.true("use_qk_norm", True),
        "qk_norm_over": "all" if over and config.true("use_qk_norm", True) else "head",
    }
    data["experts"]["router_bias"] = config.true("use_routing_bias", True)
    return model, data


def glm4_moe(config: Configuration) -> Built:
    """Build GLM-4.5 and its descendants without the layers that predict further tokens."""
    model, data = llama(config)
    data["attention"] |= {
        "bias": "qkv" if config.true("attention_bias", False) else "none",
        "qk_norm": config.true("use_qk_norm", False),
    }
    return model, data | {
        "experts": {
            "count": config.whole("n_routed_experts"),
            "top_k": config.whole("num_experts_per_tok"),
            "size": config.whole("moe_intermediate_size"),
            "shared": config.whole("n_shared_experts", 1, low=0),
            "dense_first": config.whole("first_k_dense_replace", 1, low=0),
            "router_bias": True,
            "groups": config.whole("n_group", 1),
            "top_groups": config.whole("topk_group", 1),
        }
    }
