"""YAML from other sources: aliases and merges must not multiply, and no key may occur twice."""

from __future__ import annotations

import os
from contextlib import suppress
from typing import Any

from armillary.base.allowed import how_to_raise, limit
from armillary.base.errors import InputError
from armillary.base.hints import key_text
from armillary.base.reading import MOST_DEPTH, check_depth
from armillary.base.units import format_count

MOST_VALUES = 250_000
"""Values of a YAML document with all aliases and merges written out: the links of a machine of 28,000, 100 times what
the largest of our files has. They take 4 s to read, and 0.2 GB."""
FAST_FROM = 1 << 17
"""Characters from which libyaml reads: 8 times as fast, but its messages for broken files are other ones."""
FAST_LOOKS = 1_000_000
"""Looks of PyYAML at open brackets, of which each may begin a key, from which libyaml reads, too: 1 s. 128 KB of
brackets in brackets took 33 s, and 1,000 open ones 8 s."""


def load_yaml(text: str, name: str | os.PathLike[str]) -> Any:
    """Return the value of YAML text, with the plain types of JSON, and dates.

    Raises:
        InputError: it is not valid, has a key twice, is nested too deeply, or has too many values.
    """
    import yaml

    path = os.fspath(name)
    # Each value but the first of a list stands after one of these: counted before anything is made of them.
    _check_count(sum(text.count(sign) for sign in ("\n", ",", ": ", "- ")) / 3, path)
    try:
        node = _compose(text)
        if node is None:
            return None
        _check_size(node, path)
        found = _constructor(path).construct_document(node)
    except yaml.MarkedYAMLError as error:
        # PyYAML from 6.0.4 on has a limit of its own.
        if "nesting depth" in str(error.problem):
            raise InputError(f"{path}: nested too deeply for YAML") from None
        mark = error.problem_mark or error.context_mark
        place = f":{mark.line + 1}:{mark.column + 1}" if mark else ""
        raise InputError(f"{path}{place}: not valid YAML: {error.problem or error.context}") from None
    except RecursionError:
        raise InputError(f"{path}: nested too deeply for YAML") from None
    # ValueError: a date that is none, a number of thousands of digits; the rest are what constructors raise.
    except (yaml.YAMLError, ValueError, TypeError, AttributeError, IndexError, KeyError) as error:
        said = (str(error).splitlines() or [type(error).__name__])[0]
        raise InputError(f"{path}: not valid YAML: {said}") from None
    check_depth(found, path)
    return found


def yaml_nodes(text: str) -> Any:
    """Return the nodes of a text that `load_yaml` has read, which know their lines; None where there are none."""
    return _compose(text)


def _compose(text: str) -> Any:
    import yaml

    libyaml: Any = getattr(yaml, "CSafeLoader", None)
    brackets = text.count("[") + text.count("{")
    looks = (brackets + text.count(",")) * min(brackets, MOST_DEPTH)
    fast = libyaml is not None and (len(text) >= FAST_FROM or looks > FAST_LOOKS)
    if fast:
        _check_nesting(text, libyaml)
    elif libyaml is not None and brackets > MOST_DEPTH:
        # What is broken is left to the messages of PyYAML.
        with suppress(yaml.YAMLError):
            _check_nesting(text, libyaml)
    loader = libyaml(text) if fast else yaml.SafeLoader(text)
    try:
        return loader.get_single_node()
    finally:
        loader.dispose()


def _check_nesting(text: str, fast: Any) -> None:
    """Raise RecursionError where libyaml, whose composer has no limit, would run out of its stack and crash.

    Its messages for broken files are raised as they come.
    """
    import yaml

    depth = 0
    for event in yaml.parse(text, Loader=fast):
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > MOST_DEPTH:
            raise RecursionError


def _constructor(path: str) -> Any:
    import yaml

    class Constructor(yaml.constructor.SafeConstructor, yaml.resolver.Resolver):
        """Rejects duplicate keys: which of the two would count differs between YAML libraries."""

        def __init__(self) -> None:
            yaml.constructor.SafeConstructor.__init__(self)
            yaml.resolver.Resolver.__init__(self)

        def construct_scalar(self, node: Any) -> Any:
            found = super().construct_scalar(node)
            if isinstance(found, str) and not found.isascii():
                try:
                    found.encode()
                except UnicodeEncodeError as error:
                    # An escape may say what UTF-8 cannot, and nobody could write it again.
                    half = f"\\u{ord(found[error.start]):04x}"
                    raise InputError(
                        f"{path}:{node.start_mark.line + 1}: has {half}, half of a character; expected both halves"
                    ) from None
            return found

        def construct_mapping(self, node: Any, deep: bool = False) -> Any:
            seen: set[str] = set()
            for key, _ in node.value if isinstance(node, yaml.MappingNode) else ():
                if isinstance(key, yaml.ScalarNode) and not key.tag.endswith(":merge"):
                    if key.value in seen:
                        line = key.start_mark.line + 1
                        raise InputError(f"{path}:{line}: {key_text((key.value,))}: key given twice")
                    seen.add(key.value)
            return super().construct_mapping(node, deep)

    return Constructor()


def _check_size(root: Any, path: str) -> None:
    """Refuse a document with too many values, as they would be without aliases, or one that is within itself.

    A merge copies what it names, so what `9` merges of `9` merges have is counted before anything is copied.
    """
    sizes: dict[int, int] = {}
    open_ones: set[int] = set()
    # A stack of its own, as the depth is not known yet: each node is seen before and after what is in it.
    stack: list[tuple[Any, bool]] = [(root, False)]
    while stack:
        node, after = stack.pop()
        if after:
            open_ones.discard(id(node))
            size = 1 + sum(sizes[id(each)] for each in _within(node))
            _check_count(size, f"{path}:{node.start_mark.line + 1}")
            sizes[id(node)] = size
        elif id(node) in open_ones:
            raise InputError(
                f"{path}:{node.start_mark.line + 1}: is within itself, by an alias; expected an end"
            )
        elif id(node) not in sizes:
            open_ones.add(id(node))
            stack.append((node, True))
            stack += [(each, False) for each in _within(node)]


def _check_count(size: float, where: str) -> None:
    most = limit(MOST_VALUES)
    if size > most:
        raise InputError(
            f"{where}: has {format_count(size)} values with all aliases written out, expected at most "
            f"{format_count(int(most))} ({how_to_raise(size / most)})"
        )


def _within(node: Any) -> list[Any]:
    if isinstance(node.value, str):
        return []
    # A mapping has pairs of nodes, a sequence nodes.
    return [each for pair in node.value for each in (pair if isinstance(pair, tuple) else (pair,))]
