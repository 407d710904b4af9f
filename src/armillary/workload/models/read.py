"""Models by name or from files: the presets, model files of our own, Hugging Face configurations."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

from pydantic import ValidationError

from armillary.base.document import Document, Source, is_there, read_document
from armillary.base.errors import InputError, nearest
from armillary.base.hints import show
from armillary.platform.fields import first_error
from armillary.workload.models.hugging_face import from_hugging_face
from armillary.workload.models.schema import KINDS, Model

_REPOSITORY = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*(?<!\.yaml)(?<!\.yml)(?<!\.json)")
"""The form of a model name on Hugging Face: owner/name."""
_SUFFIXES = (".yaml", ".yml", ".json")
PRESETS = Path(__file__).parents[1] / "presets"
_ALSO = {
    "deepseek-v3": "DeepSeek-V3-0324 DeepSeek-V3-Base DeepSeek-V3.1 DeepSeek-R1 DeepSeek-R1-0528",
    "gemma-3-4b": "gemma-3-4b-pt gemma-3-4b-it",
    "gemma-3-12b": "gemma-3-12b-pt gemma-3-12b-it",
    "gemma-3-27b": "gemma-3-27b-pt gemma-3-27b-it",
    "gpt-3-175b": "GPT-3",
    "kimi-k2": "Kimi-K2-Base Kimi-K2-Instruct",
    "llama-2-7b": "Llama-2-7b-hf Llama-2-7b-chat-hf",
    "llama-2-13b": "Llama-2-13b-hf Llama-2-13b-chat-hf",
    "llama-2-70b": "Llama-2-70b-hf Llama-2-70b-chat-hf",
    "llama-3-8b": "Llama-3-8B-Instruct",
    "llama-3-70b": "Llama-3-70B-Instruct",
    "llama-3-405b": "Llama-3.1-405B Llama-3.1-405B-Instruct",
    "llama-3.1-8b": "Llama-3.1-8B-Instruct",
    "llama-3.1-70b": "Llama-3.1-70B-Instruct Llama-3.3-70B Llama-3.3-70B-Instruct",
    "llama-4-maverick": "Llama-4-Maverick-17B-128E Llama-4-Maverick-17B-128E-Instruct",
    "llama-4-scout": "Llama-4-Scout-17B-16E Llama-4-Scout-17B-16E-Instruct",
    "mixtral-8x7b": "Mixtral-8x7B-v0.1 Mixtral-8x7B-Instruct-v0.1",
    "mixtral-8x22b": "Mixtral-8x22B-v0.1 Mixtral-8x22B-Instruct-v0.1",
    "qwen3-next-80b-a3b": "Qwen3-Next-80B-A3B-Instruct Qwen3-Next-80B-A3B-Thinking",
}
"""Preset -> other names that models of the same configuration are published under: other weights, the same work."""


def preset_names() -> list[str]:
    """Return the names of the presets, in order."""
    return sorted(path.stem for path in PRESETS.glob("*.yaml"))


def preset_named(name: str) -> str | None:
    """Return the preset that `name` means, or None: case, owner and punctuation do not count.

    ``meta-llama/Llama-3.3-70B-Instruct`` is ``llama-3.1-70b``, whose configuration it has.
    """
    return _by_letters().get(_letters(name))


@cache
def _by_letters() -> dict[str, str]:
    also = {_letters(other): preset for preset, others in _ALSO.items() for other in others.split()}
    # Two presets of the same letters would have to be told apart by their dots and dashes; a test says there are none.
    return also | {_letters(preset): preset for preset in preset_names()}


def _letters(name: str) -> str:
    # Meta has published the same models with its name before theirs and without.
    return re.sub(r"[^a-z0-9]", "", name.lower().rpartition("/")[2].removeprefix("meta-"))


def model_file(name: str | Path, folder: Path) -> Path | None:
    """Return the file below `folder` that `name` means; None: it means a preset, or nothing.

    A preset goes first; else a suffix, a folder in it or an existing file makes it a path.
    """
    path = folder / name
    if name in preset_names():
        return None
    if Path(name).suffix in _SUFFIXES or is_there(path):
        return path
    return path if len(Path(name).parts) > 1 and not _REPOSITORY.fullmatch(str(name)) else None


def model_of(given: str | Path | Model) -> Model:
    """Return a model that is given, or read it by its name or file, see `load_model`.

    Raises:
        InputError: it is neither, or `load_model` refuses it.
    """
    if isinstance(given, Model):
        return given
    if not isinstance(given, str | Path):
        raise InputError(f"model: got {show(given)}, expected the name of a model, its file, or a model")
    return load_model(given)


def load_model(name: str | Path, folder: Path = Path()) -> Model:
    """Read a preset by its name, a model file (YAML), or a Hugging Face ``config.json`` or its folder.

    A file is a path with a suffix or a folder in it, or that exists. A preset may have its name on Hugging Face.

    Args:
        name: Name or path.
        folder: What a path is relative to.

    Raises:
        InputError: no such preset or file, or the file is malformed.
    """
    if not str(name).strip():
        raise InputError(
            f"model: got {show(str(name))}, expected its name or file; `armillary generate list` shows names"
        )
    path = model_file(name, folder)
    if path is not None:
        is_configuration = path.suffix == ".json" or (is_there(path) and path.is_dir())
        return from_hugging_face(path) if is_configuration else read_model(path)
    text, names = str(name), preset_names()
    if preset := preset_named(text):
        return _preset(preset)
    if "/" in text:
        raise InputError(
            f"model '{text}': no such file; a model of Hugging Face is read from its config.json, expected the path of "
            f"that file, or a preset{nearest(text.rpartition('/')[2], names)}"
        )
    hint = nearest(text, names) or "; `armillary generate list` shows them"
    raise InputError(f"model '{text}': no such preset, nor a file{hint}")


@cache
def _preset(name: str) -> Model:
    # Files of the package do not change while the program runs, and a model cannot be changed.
    return read_model(PRESETS / f"{name}.yaml")


def read_model(source: Source) -> Model:
    """Read a model description in our own format: a YAML file, or its parsed content.

    Raises:
        InputError: it is missing or malformed, or has a key that is not known.
    """
    document = read_document(source, "model file", "yaml")
    kind = document.choice(("kind",), document.require("kind", "the kind of model"), KINDS)
    return validated(document, KINDS[kind], document.data)


def validated(document: Document, kind: type[Model], data: object) -> Model:
    """Return the model that `data` describes.

    Raises:
        InputError: it describes none; the message names the file and the line in `document`.
    """
    try:
        return kind.model_validate(data)
    except ValidationError as error:
        raise first_error(document, error) from None
