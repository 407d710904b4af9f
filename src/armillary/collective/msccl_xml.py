"""XML elements that know their line, so that every message can name it."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from xml.parsers import expat

from armillary.base.errors import InputError, nearest, one_of
from armillary.base.reading import read_plain
from armillary.base.xml_text import refuse_entity

CHILDREN = {"": ("algo",), "algo": ("gpu",), "gpu": ("tb",), "tb": ("step",), "step": ()}
"""Element -> the elements that may stand in it; "" is the file."""


@dataclass
class Element:
    """One element: its name, attributes, children, and where it stands."""

    name: str
    attributes: dict[str, str]
    line: int
    source: str
    children: list[Element] = field(default_factory=list)

    def error(self, text: str) -> InputError:
        """Return an error about this element."""
        return InputError(f"{self.source}, line {self.line}: <{self.name}> {text}")

    def text(self, key: str, default: str | None = None) -> str:
        """Return attribute `key`; without a default it must be there."""
        found = self.attributes.get(key, default)
        if found is None:
            hint = nearest(key, self.attributes)
            raise self.error(f"has no attribute '{key}'{hint}")
        return found

    def number(self, key: str, least: int, default: int | None = None, below: int | None = None) -> int:
        """Return attribute `key`, a whole number of at least `least` and less than `below`."""
        text = self.text(key, None if default is None else str(default))
        top = "" if below is None else f" and below {below}"
        try:
            value = int(text)
        except ValueError:
            value = least - 1
        if value < least or (below is not None and value >= below):
            raise self.error(f"{key}='{text}': expected a whole number of at least {least}{top}")
        return value


def read_xml(path: str | Path) -> Element:
    """Return the ``algo`` element of a file.

    Raises:
        InputError: the file cannot be read, or is no XML of algo, gpu, tb and step.
    """
    try:
        return parse_xml(read_plain(path), str(path))
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}") from error


def parse_xml(text: str | bytes, source: str) -> Element:
    """Return the ``algo`` element of `text`, which messages call `source`; see `read_xml`."""
    # A root above the file's root, so that the first element is checked like any other.
    stack = [Element("", {}, 1, source)]
    parser = expat.ParserCreate()

    def start(name: str, attributes: dict[str, str]) -> None:
        element = Element(name, attributes, parser.CurrentLineNumber, source)
        allowed = CHILDREN[stack[-1].name]
        if name not in allowed:
            what = one_of(allowed) if allowed else "nothing"
            place = f"inside <{stack[-1].name}>" if stack[-1].name else "at the top"
            raise element.error(f"{place}: expected {what}{nearest(name, allowed)}")
        stack[-1].children.append(element)
        stack.append(element)

    parser.StartElementHandler = start
    parser.EntityDeclHandler = partial(refuse_entity, source)
    parser.EndElementHandler = lambda name: stack.pop()
    try:
        parser.Parse(text, True)
    except expat.ExpatError as error:
        raise InputError(
            f"{source}, line {error.lineno}: not XML: {expat.ErrorString(error.code)}"
        ) from error
    # Every XML document has exactly one element at its top.
    return stack[0].children[0]
