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
