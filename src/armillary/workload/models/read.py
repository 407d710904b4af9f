"""Models by name or from files: the presets, model files of our own, Hugging Face configurations."""

from __future__ import annotations

import re
from pathlib import Path

from pydantic import ValidationError

from armillary.base.document import Document, Source, is_there, read_document
from armillary.base.errors import InputError, nearest
from armillary.platform.fields import first_error
from armillary.workload.models.hugging_face import from_hugging_face
from armillary.workload.models.schema import KINDS, Model

_REPOSITORY = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*(?<!\.yaml)(?<!\.yml)(?<!\.json)")
"""The form of a model name on Hugging Face: owner/name."""
PRESETS = Path(__file__).parents[1] / "presets"


def preset_names() -> list[str]:
    """Return the names of the presets, in order."""
    return sorted(path.stem for path in PRESETS.glob("*.yaml"))


def load_model(name: str | Path) -> Model:
    """Read a preset by its name, a model file (YAML), or a Hugging Face ``config.json`` or its folder.

    A file is a path with a suffix or a folder in it, or that exists.

    Raises:
        InputError: no such preset or file, or the file is malformed.
    """
    path, names = Path(name), preset_names()
    if name in names:
        return read_model(PRESETS / f"{name}.yaml")
    if path.suffix == ".json" or (is_there(path) and path.is_dir()):
        return from_hugging_face(path)
    # Before the general case, as such a name looks like a path in a folder.
    if _REPOSITORY.fullmatch(str(name)) and not is_there(path):
        raise InputError(
            f"model '{name}': no such file; a model of Hugging Face is read from its config.json, expected the path of "
            f"that file, or a preset{nearest(path.name, names)}"
        )
    if path.suffix in (".yaml", ".yml") or len(path.parts) > 1 or is_there(path):
        return read_model(path)
    hint = nearest(str(name), names) or "; `armillary generate list` shows them"
    raise InputError(f"model '{name}': no such preset, nor a file{hint}")


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
