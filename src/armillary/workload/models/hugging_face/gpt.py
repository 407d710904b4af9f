"""GPT-2 and others with layer norms and biases, and the vision transformer."""

from __future__ import annotations

from armillary.workload.models.hugging_face.configuration import Built, Configuration
from armillary.workload.models.schema import Decoder, Vit


def gpt2(config: Configuration) -> Built:
    """Build GPT-2."""
    hidden, positions = config.whole("n_embd"), config.whole("n_positions")
    return Decoder, {
        "layers": config.whole("n_layer"),
        "hidden": hidden,
        "vocabulary": config.whole("vocab_size"),
        "context": positions,
        "learned_positions": positions,
        "tied": config.true("tie_word_embeddings", True),
        "norm": "layer",
        "activation": config.activation("activation_function", "gelu_new", gated=False),
        "attention": {"heads": config.whole("n_head"), "bias": "all"},
        "mlp": {"size": config.whole("n_inner", 4 * hidden), "bias": True},
    }


def gpt_neox(config: Configuration) -> Built:
    """Build GPT-NeoX."""
    return Decoder, {
        "layers": config.whole("num_hidden_layers"),
        "hidden": config.whole("hidden_size"),
        "vocabulary": config.whole("vocab_size"),
        "context": config.whole("max_position_embeddings"),
        "tied": config.true("tie_word_embeddings", False),
        "norm": "layer",
        "activation": config.activation(default="gelu", gated=False),
        "attention": {
            "heads": config.whole("num_attention_heads"),
            # Configurations before the key was introduced are of models with biases.
            "bias": "all" if config.true("attention_bias", True) else "none",
        },
        "mlp": {"size": config.whole("intermediate_size"), "bias": True},
    }


def opt(config: Configuration) -> Built:
    """Build OPT, without the sizes whose embedding is narrower."""
    hidden, positions = config.whole("hidden_size"), config.whole("max_position_embeddings")
    config.only("word_embed_proj_dim", hidden, "an embedding as wide as hidden_size")
    config.only("do_layer_norm_before", True, "norms before each block")
    config.only("_remove_final_layer_norm", False, "a final norm")
    bias = config.true("enable_bias", True)
    return Decoder, {
        "layers": config.whole("num_hidden_layers"),
        "hidden": hidden,
        "vocabulary": config.whole("vocab_size"),
        "context": positions,
        "learned_positions": positions + 2,  # OPT's table has two rows before the first position
        "tied": config.true("tie_word_embeddings", True),
        "norm": "layer",
        "activation": config.activation("activation_function", "relu", gated=False),
        "attention": {"heads": config.whole("num_attention_heads"), "bias": "all" if bias else "none"},
        "mlp": {"size": config.whole("ffn_dim"), "bias": bias},
    }


def bloom(config: Configuration) -> Built:
    """Build BLOOM without the norm after its embedding; its biases of distance count as rotary positions."""
    hidden = config.whole("hidden_size" if config.given("hidden_size") else "n_embed")
    config.only("apply_residual_connection_post_layernorm", False, "a residual from before the norm")
    return Decoder, {
        "layers": config.whole("n_layer" if config.given("n_layer") else "num_hidden_layers"),
        "hidden": hidden,
        "vocabulary": config.whole("vocab_size"),
        "context": config.whole("seq_length", 2048),
        "tied": config.true("tie_word_embeddings", True),
        "norm": "layer",
        "activation": "gelu",
        "attention": {
            "heads": config.whole("n_head" if config.given("n_head") else "num_attention_heads"),
            "bias": "all",
        },
        "mlp": {"size": 4 * hidden, "bias": True},
    }


def mpt(config: Configuration) -> Built:
    """Build MPT without biases, as all published ones are; its biases of distance count as rotary positions."""
    config.only("no_bias", True, "projections without biases")
    hidden, heads = config.whole("d_model"), config.whole("n_heads")
    return Decoder, {
        "layers": config.whole("n_layers"),
        "hidden": hidden,
        "vocabulary": config.whole("vocab_size"),
        "context": config.whole("max_seq_len", 2048),
        "tied": config.true("tie_word_embeddings", True),
        # Layer norms without a bias have as many parameters.
        "norm": "rms",
        "activation": "gelu",
        "attention": {"heads": heads, "kv_heads": config.part("attn_config").whole("kv_n_heads", heads)},
        "mlp": {"size": config.whole("expansion_ratio", 4) * hidden},
    }


def dbrx(config: Configuration) -> Built:
    """Build DBRX, whose layer norms have no bias."""
    experts = config.part("ffn_config")
    return Decoder, {
        "layers": config.whole("n_layers", 24),
        "hidden": config.whole("d_model", 2048),
        "vocabulary": config.whole("vocab_size", 32000),
        "context": config.whole("max_seq_len", 2048),
        "tied": config.true("tie_word_embeddings", False),
        "norm": "rms",
        "activation": "swiglu",
        "attention": {
            "heads": config.whole("n_heads", 16),
            "kv_heads": config.part("attn_config").whole("kv_n_heads", 1),
        },
        "experts": {
            "count": experts.whole("moe_num_experts", 4),
            "top_k": experts.whole("moe_top_k", 1),
            "size": experts.whole("ffn_hidden_size", 3584),
        },
    }


def vit(config: Configuration) -> Built:
    """Build a vision transformer, with a classifier unless the file is of the bare model."""
    labels = config.value("id2label")
    bare = config.value("architectures") == ["ViTModel"]
    # transformers takes the labels for the number of classes; without them its default is 2.
    classes = len(labels) if isinstance(labels, dict) else config.whole("num_labels", 2)
    return Vit, {
        "image": config.whole("image_size", 224),
        "patch": config.whole("patch_size", 16),
        "channels": config.whole("num_channels", 3),
        "layers": config.whole("num_hidden_layers"),
        "hidden": config.whole("hidden_size"),
        "heads": config.whole("num_attention_heads"),
        "mlp": config.whole("intermediate_size"),
        "qkv_bias": config.true("qkv_bias", True),
        "pooler": bare,
        "classes": 0 if bare else classes,
    }


def starcoder2(config: Configuration) -> Built:
    """Build StarCoder 2: layer norms, biases, an MLP without a gate, and grouped heads."""
    bias = config.true("use_bias", True)
    return Decoder, {
        "layers": config.whole("num_hidden_layers"),
        "hidden": config.whole("hidden_size"),
        "vocabulary": config.whole("vocab_size"),
        "context": config.whole("max_position_embeddings", 4096),
        "tied": config.true("tie_word_embeddings", True),
        "norm": "layer",
        "activation": config.activation(default="gelu_pytorch_tanh", gated=False),
        "attention": {
            "heads": config.whole("num_attention_heads"),
            "kv_heads": config.whole("num_key_value_heads", 2),
            "window": config.optional("sliding_window"),
            "bias": "all" if bias else "none",
        },
        "mlp": {"size": config.whole("intermediate_size"), "bias": bias},
    }
