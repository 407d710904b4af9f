"""Descendants of Llama that alternate layers with a window and layers that see all keys.

In a description the layers without a window come first, which costs the same.
"""

from __future__ import annotations

from armillary.workload.models.hugging_face.configuration import Built, Configuration
from armillary.workload.models.hugging_face.llama import llama, mixtral


def gemma(config: Configuration) -> Built:
    """Build Gemma, whose layers all see all keys."""
    # Older files have the key of Llama.
    act = "hidden_act" if config.given("hidden_act") else "hidden_activation"
    model, data = llama(config.filled({act: "gelu_pytorch_tanh"}), tied=True, act=act)
    data["attention"]["head_size"] = config.whole("head_dim", 256)
    return model, data


def gemma2(config: Configuration) -> Built:
    """Build Gemma 2 without its norms after blocks."""
    model, data = gemma(config)
    data["attention"] |= {
        "window": config.whole("sliding_window", 4096),
        "full_layers": config.windows("full_attention", 2),
    }
    return model, data


def gemma3(config: Configuration) -> Built:
    """Build the text model of Gemma 3 without its norms after blocks; its files leave defaults out."""
    usual = {
        "num_attention_heads": 8, "num_key_value_heads": 4, "vocab_size": 262208,
        "max_position_embeddings": 131072,
    }  # fmt: skip
    model, data = gemma(config.filled(usual))
    pattern = config.whole("sliding_window_pattern", 6)
    data["attention"] |= {
        "qk_norm": True,
        "window": config.whole("sliding_window", 4096),
        "full_layers": config.windows("full_attention", pattern),
    }
    return model, data


def gpt_oss(config: Configuration) -> Built:
    """Build gpt-oss, whose attention has sinks and whose experts have biases."""
    model, data = mixtral(config)
    data["attention"] |= {
        "bias": "all" if config.true("attention_bias", True) else "none",
        "sinks": True,
        "head_size": config.whole("head_dim", 64),
        "window": config.whole("sliding_window", 128),
        "full_layers": config.windows("full_attention", 2),
    }
    limit = config.value("swiglu_limit", 7.0)
    data["experts"] |= {"bias": True, "router_bias": True, "limit": limit}
    return model, data


def llama4(config: Configuration) -> Built:
    """Build the text model of Llama 4: a piece of tokens that see each other counts as a window as long."""
    model, data = llama(config)
    layers = data["layers"]
    plain = config.value("no_rope_layers") or None
    if plain is not None and (not isinstance(plain, list) or len(plain) != layers):
        config.document.reject(("no_rope_layers",), plain, f"a list of {layers} numbers, 0 or 1")
    # A 0 marks a layer without rotary positions, which sees all keys; by default every fourth is one.
    full = plain.count(0) if plain else config.windows("full_attention", 4)
    data["attention"] |= {"window": config.whole("attention_chunk_size", 8192), "full_layers": full}
    data["experts"] = {
        "count": config.whole("num_local_experts"),
        "top_k": config.whole("num_experts_per_tok"),
        "size": data["mlp"]["size"],
        "shared": 1,
        "every": config.whole("interleave_moe_layer_step", 1),
    }
    data["mlp"]["size"] = config.whole("intermediate_size_mlp", data["mlp"]["size"])
    return model, data
