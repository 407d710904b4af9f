"""Model descriptions from the ``config.json`` of Hugging Face transformers.

The description is of the model that the hub publishes: a causal language model, or an image classifier. Keys that do
not change a shape are ignored. A key that a configuration leaves out has the default of transformers; only the defaults
that older files rely on are listed here, and every other key must be present.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from armillary.base.document import Document, Source, read_document
from armillary.base.errors import InputError
from armillary.base.hints import key_text
from armillary.workload.models.schema import Decoder, Model, Vit

_ACTIVATIONS = {
    "gelu": "gelu",
    "gelu_new": "gelu",
    "gelu_fast": "gelu",
    "gelu_pytorch_tanh": "gelu",
    "relu": "relu",
    "silu": "silu",
}


def from_hugging_face(source: Source) -> Model:
    """Read the ``config.json`` of a model, or of the folder that holds one, or what it holds.

    Raises:
        InputError: the file is missing or malformed, or of an architecture that is not known.
    """
    kind = "Hugging Face configuration"
    if isinstance(source, Mapping):
        file = Path(kind)
    else:
        file = Path(source) / "config.json" if Path(source).is_dir() else Path(source)
        source = file
    config = _Config(read_document(source, kind, "json"))
    kind = config.document.choice(
        ("model_type",), config.document.require("model_type", "the architecture"), ARCHITECTURES
    )
    model, data = ARCHITECTURES[kind](config)
    named = config.document.data.get("_name_or_path") or file.parent.name or kind
    try:
        return model.model_validate(data | {"name": str(named), "source": [str(file)]})
    except ValidationError as error:  # keys have other names there
        found = error.errors()[0]
        text = found["msg"].removeprefix("Value error, ")
        raise InputError(f"{file}: {key_text(found['loc']) or 'the model'}: {text}") from None


class _Config:
    """A configuration whose values are checked when they are taken."""

    def __init__(self, document: Document) -> None:
        self.document = document

    def given(self, key: str) -> bool:
        """Return whether `key` has a value that is not null."""
        return self.document.data.get(key) is not None

    def whole(self, key: str, default: int | None = None, low: int = 1) -> int:
        """Return a whole number of at least `low`; without a default the key must be there."""
        if not self.given(key) and default is not None:
            return default
        return self.document.whole((key,), self.document.require(key), low)

    def optional(self, key: str) -> int | None:
        """Return a whole number, or None if it is absent or null."""
        return self.whole(key) if self.given(key) else None

    def true(self, key: str, default: bool) -> bool:
        """Return a truth value."""
        value = self.document.data.get(key, default)
        if not isinstance(value, bool):
            self.document.reject((key,), value, "true or false")
        return value

    def activation(self, key: str = "hidden_act", default: str | None = None, *, gated: bool) -> str:
        """Return our name of an activation; `gated`: the block has two input projections."""
        value = self.document.data.get(key, default) if default else self.document.require(key)
        # A gated block with silu is SwiGLU; without a gate silu has no name in our schema.
        known = ("silu",) if gated else tuple(name for name in _ACTIVATIONS if name != "silu")
        return "swiglu" if self.document.choice((key,), value, known) == "silu" else _ACTIVATIONS[value]

    def only(self, key: str, value: object, why: str) -> None:
        """Refuse a `key` that is there with another value than `value`."""
        if key in self.document.data and self.document.data[key] != value:
            self.document.reject((key,), self.document.data[key], f"{value} ({why})")


SPARSE = ("deepseek_v32", "glm_moe_dsa")
"""Architectures of DeepSeek-V3.2 and GLM-5: latent attention over keys that a small attention chooses."""
_Built = tuple[type[Model], dict[str, Any]]


# From here on one function per architecture, which reads the keys that its own configuration class in
# transformers has. Descendants change the dictionary of their parent.
def _llama(config: _Config, *, bias: str = "none") -> _Built:
    """Build what Llama and its descendants share."""
    heads = config.whole("num_attention_heads")
    return Decoder, {
        "layers": config.whole("num_hidden_layers"),
        "hidden": config.whole("hidden_size"),
        "vocabulary": config.whole("vocab_size"),
        "context": config.whole("max_position_embeddings", 2048),
        "tied": config.true("tie_word_embeddings", False),
        "norm": "rms",
        "activation": config.activation(default="silu", gated=True),
        "attention": {
            "heads": heads,
            "kv_heads": config.whole("num_key_value_heads", heads),
            # Some models project to more or fewer elements than the hidden size, and say so here.
            "head_size": config.optional("head_dim"),
            "bias": "all" if config.true("attention_bias", False) else bias,
        },
        "mlp": {"size": config.whole("intermediate_size"), "bias": config.true("mlp_bias", False)},
    }


def _mistral(config: _Config) -> _Built:
    model, data = _llama(config)
    # null means no window, as from Mistral v0.2 on.
    data["attention"]["window"] = config.optional("sliding_window")
    return model, data


def _mixtral(config: _Config) -> _Built:
    model, data = _mistral(config)
    data["experts"] = {
        "count": config.whole("num_local_experts"),
        "top_k": config.whole("num_experts_per_tok"),
        # Mixtral's ``intermediate_size`` is that of an expert, and no layer is dense.
        "size": data.pop("mlp")["size"],
    }
    return model, data


def _qwen2(config: _Config) -> _Built:
    # Qwen2 has the three biases hard-coded, without a key.
    model, data = _llama(config, bias="qkv")
    _qwen_window(config, data)
    return model, data


def _qwen3(config: _Config) -> _Built:
    model, data = _llama(config)
    data["attention"] |= {"qk_norm": True, "head_size": config.whole("head_dim", 128)}
    _qwen_window(config, data)
    return model, data


def _qwen_window(config: _Config, data: dict[str, Any]) -> None:
    # The window applies from layer ``max_window_layers`` on, and only if it is switched on.
    if config.true("use_sliding_window", False) and config.given("sliding_window"):
        data["attention"]["window"] = config.whole("sliding_window")
        data["attention"]["full_layers"] = config.whole("max_window_layers", low=0)


def _qwen2_moe(config: _Config) -> _Built:
    model, data = _qwen2(config)
    shared = config.whole("shared_expert_intermediate_size")
    return model, data | _qwen_experts(config, {"shared": 1, "shared_size": shared, "shared_gate": True})


def _qwen3_moe(config: _Config) -> _Built:
    model, data = _qwen3(config)
    return model, data | _qwen_experts(config, {})


def _qwen3_next(config: _Config) -> _Built:
    """Build Qwen3-Next without the module that predicts further tokens."""
    model, data = _qwen3(config)
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
    return model, data | _qwen_experts(config, {"shared": 1, "shared_size": shared, "shared_gate": True})


def _nemotron_h(config: _Config) -> _Built:
    """Build Nemotron-H, or Nemotron 3 Nano, whose layers have one block each."""
    layout = str(config.document.require("hybrid_override_pattern", "a letter for each layer, such as MEM*"))
    bias = config.true("mlp_bias", False)
    data: dict[str, Any] = {
        "layers": config.whole("num_hidden_layers"),
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
    return Decoder, data


def _qwen_experts(config: _Config, shared: dict[str, Any]) -> dict[str, Any]:
    # The schema has a number of dense layers at the start; other places cannot be described.
    dense = config.document.data.get("mlp_only_layers") or []
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


def _deepseek(config: _Config) -> _Built:
    """Build DeepSeek-V2 or V3 without the layers that predict further tokens, which serving leaves out."""
    config.only("moe_layer_freq", 1, "every layer after the first dense ones has experts")
    config.only("attention_bias", False, "latent attention without biases")
    model, data = _llama(config)
    data["attention"] = {
        "heads": config.whole("num_attention_heads"),
        "latent": {
            "query_rank": config.optional("q_lora_rank"),
            "kv_rank": config.whole("kv_lora_rank"),
            "plain_size": config.whole("qk_nope_head_dim"),
            "rotary_size": config.whole("qk_rope_head_dim"),
            "value_size": config.whole("v_head_dim"),
        },
    }
    kind = config.document.data["model_type"]
    if kind in SPARSE:
        data["attention"]["sparse"] = {
            "heads": config.whole("index_n_heads"),
            "size": config.whole("index_head_dim"),
            "top": config.whole("index_topk"),
        }
    data["experts"] = {
        "count": config.whole("n_routed_experts"),
        "top_k": config.whole("num_experts_per_tok"),
        "size": config.whole("moe_intermediate_size"),
        "shared": config.whole("n_shared_experts", 0, low=0),
        "dense_first": config.whole("first_k_dense_replace", low=0),
        # V3's ``e_score_correction_bias`` balances the load without a loss.
        "router_bias": kind != "deepseek_v2",
    }
    # V2 restricts groups only with this method (V2-Lite is greedy), V3 always.
    third = data["experts"]["router_bias"]
    if third or config.document.data.get("topk_method") == "group_limited_greedy":
        # Absent keys: as `transformers` has them.
        data["experts"] |= {
            "groups": config.whole("n_group", 8 if third else 1),
            "top_groups": config.whole("topk_group", 4 if third else 1),
        }
    return model, data


def _gpt2(config: _Config) -> _Built:
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


def _gpt_neox(config: _Config) -> _Built:
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


def _opt(config: _Config) -> _Built:
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


def _vit(config: _Config) -> _Built:
    labels = config.document.data.get("id2label")
    bare = config.document.data.get("architectures") == ["ViTModel"]
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


ARCHITECTURES: dict[str, Callable[[_Config], _Built]] = {
    "llama": _llama,
    "mistral": _mistral,
    "mixtral": _mixtral,
    "qwen2": _qwen2,
    "qwen2_moe": _qwen2_moe,
    "qwen3": _qwen3,
    "qwen3_moe": _qwen3_moe,
    "qwen3_next": _qwen3_next,
    "nemotron_h": _nemotron_h,
    "deepseek_v2": _deepseek,
    "deepseek_v3": _deepseek,
    **dict.fromkeys(SPARSE, _deepseek),
    "gpt2": _gpt2,
    "gpt_neox": _gpt_neox,
    "opt": _opt,
    "vit": _vit,
}
"""``model_type`` -> its reader."""
