"""Model descriptions from the ``config.json`` of Hugging Face transformers.

The description is of the model that the hub publishes: a causal language model, or an image classifier; of a model that
also takes pictures, the one that answers in text. There is one function per architecture, which reads the keys that its
own configuration class in transformers has. Keys that do not change a shape are ignored. A key that a configuration
leaves out has the default of transformers; only the defaults that files rely on are listed here, and every other key
must be present.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

from pydantic import ValidationError

from armillary.base.document import Document, Source, read_document
from armillary.base.errors import InputError, nearest, one_of
from armillary.base.hints import key_text
from armillary.workload.models.hugging_face.configuration import Built, Configuration
from armillary.workload.models.hugging_face.deepseek import SPARSE, deepseek
from armillary.workload.models.hugging_face.gpt import bloom, dbrx, gpt2, gpt_neox, mpt, opt, starcoder2, vit
from armillary.workload.models.hugging_face.hybrid import nemotron_h, qwen3_next
from armillary.workload.models.hugging_face.llama import (
    glm4,
    glm4_moe,
    llama,
    minimax_m2,
    mistral,
    mixtral,
    olmo2,
    olmoe,
    qwen2,
    qwen2_moe,
    qwen3,
    qwen3_moe,
    smollm3,
    stablelm,
)
from armillary.workload.models.hugging_face.quantised import published
from armillary.workload.models.hugging_face.windowed import gemma, gemma2, gemma3, gpt_oss, llama4
from armillary.workload.models.schema import Decoder, Model

ARCHITECTURES: dict[str, Callable[[Configuration], Built]] = {
    "llama": llama,
    "mistral": mistral,
    "mixtral": mixtral,
    "phi3": mistral,
    "olmo2": olmo2,
    "olmoe": olmoe,
    "granite": llama,
    "smollm3": smollm3,
    "stablelm": stablelm,
    "glm4": glm4,
    "qwen2": qwen2,
    "qwen2_moe": qwen2_moe,
    "qwen3": qwen3,
    "qwen3_moe": qwen3_moe,
    "qwen3_next": qwen3_next,
    "glm4_moe": glm4_moe,
    "minimax_m2": minimax_m2,
    "nemotron_h": nemotron_h,
    "deepseek_v2": deepseek,
    "deepseek_v3": deepseek,
    "kimi_k2": deepseek,
    **dict.fromkeys(SPARSE, deepseek),
    "gemma": gemma,
    "gemma2": gemma2,
    "gemma3_text": gemma3,
    "gpt_oss": gpt_oss,
    "llama4_text": llama4,
    "gpt2": gpt2,
    "gpt_neox": gpt_neox,
    "opt": opt,
    "starcoder2": starcoder2,
    "bloom": bloom,
    "mpt": mpt,
    "dbrx": dbrx,
    "vit": vit,
}
"""``model_type`` -> its reader."""
_ALIKE = 0.75
"""Of `difflib`, for a typo: another name, such as mamba for llama, is another model."""


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
    document = _text_model(read_document(source, kind, "json"))
    kind = document.require("model_type", "the architecture")
    if not isinstance(kind, str) or kind not in ARCHITECTURES:
        document.reject(
            ("model_type",), kind, one_of(ARCHITECTURES), nearest(str(kind), ARCHITECTURES, alike=_ALIKE)
        )
    config = Configuration(document)
    model, data = ARCHITECTURES[kind](config)
    if model is Decoder and (quantised := config.value("quantization_config")) is not None:
        if not isinstance(quantised, Mapping):
            document.reject(("quantization_config",), quantised, "a mapping of keys to values")
        data["published"] = published(quantised, "experts" in data)
    config.check_misspelt()
    named = document.data.get("_name_or_path") or file.parent.name or kind
    try:
        return model.model_validate(data | {"name": str(named), "source": [str(file)]})
    except ValidationError as error:  # keys have other names there
        found = error.errors()[0]
        text = found["msg"].removeprefix("Value error, ")
        raise InputError(f"{file}: {key_text(found['loc']) or 'the model'}: {text}") from None


def _text_model(document: Document) -> Document:
    """Return the configuration of the text model, which others have as ``text_config``."""
    inner, kind = document.data.get("text_config"), document.data.get("model_type")
    if not isinstance(inner, Mapping) or (isinstance(kind, str) and kind in ARCHITECTURES):
        return document
    outer = {
        key: document.data[key] for key in ("_name_or_path", "quantization_config") if key in document.data
    }
    return replace(document, data={**outer, **inner})
