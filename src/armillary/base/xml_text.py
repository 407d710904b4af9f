"""XML from other sources, with limits and without entities, which can expand a few lines to gigabytes."""

from __future__ import annotations

import os
from functools import partial
from typing import Any, NoReturn
from xml.parsers import expat

from armillary.base.errors import InputError
from armillary.base.reading import MOST_DEPTH, check_values


def refuse_entity(source: str, name: str, *_: Any) -> NoReturn:
    """Refuse the declaration of an entity: a handler of expat.

    Raises:
        InputError: always.
    """
    raise InputError(f"{source}: declares the entity '{name}', expected XML without entities of its own")


def check_xml(text: str | bytes, path: str | os.PathLike[str]) -> None:
    """Refuse XML with entities of its own, too many elements, or elements nested too deeply; for other libraries.

    Raises:
        InputError: it has them, or is no XML.
    """
    source = os.fspath(path)
    count = depth = 0

    def start(_: str, attributes: dict[str, str]) -> None:
        nonlocal count, depth
        count, depth = count + 1 + len(attributes), depth + 1
        check_values(count, source)
        if depth > MOST_DEPTH:
            raise InputError(f"{source}: nested too deeply, expected at most {MOST_DEPTH} levels")

    def end(_: str) -> None:
        nonlocal depth
        depth -= 1

    parser = expat.ParserCreate()
    parser.StartElementHandler, parser.EndElementHandler = start, end
    parser.EntityDeclHandler = partial(refuse_entity, source)
    try:
        parser.Parse(text, True)
    except expat.ExpatError as error:
        raise InputError(f"{source}:{error.lineno}: not XML: {expat.ErrorString(error.code)}") from error
