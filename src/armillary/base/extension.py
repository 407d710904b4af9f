"""Registry of things selected by name, built in or from another package: one mechanism for all extension points.

A package extends an extension point with an entry point of its group. Built-in names take precedence, so that no
installed package changes the meaning of a name. A package is imported only when one of its names is used.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points
from typing import Any, TypeVar

from armillary.base.errors import ArmillaryError, InputError, nearest, one_of
from armillary.base.hints import show

T = TypeVar("T")


@dataclass(frozen=True)
class _Added:
    """What a program added itself: it is loaded already."""

    what: object

    def load(self) -> object:
        """Return it."""
        return self.what


_added: dict[str, dict[str, _Added]] = {}
"""Group -> name -> what programs have added in this process."""


@dataclass(frozen=True)
class ExtensionPoint(Collection[str]):
    """One kind of things; as a collection, their names. Searching for other packages takes 30 ms.

    Attributes:
        group: Of the entry points that add to it, "armillary.compute".
        what: What errors call one of them, "compute model".
        built_in: The names of those that are built in, in the order of lists.
    """

    group: str
    what: str
    built_in: tuple[str, ...]

    def add(self, name: str, what: object) -> None:
        """Add something in this process alone, as a package does for all by its entry point.

        Raises:
            InputError: the name is taken; by what the same program added, too, as results by that name are kept.
        """
        if not isinstance(name, str) or not name.isprintable() or not name.strip():
            raise InputError(f"{self.what}: got the name {show(name)}, expected a text")
        mine = _added.setdefault(self.group, {})
        if name in mine and mine[name].what is what:
            return
        if name in self:
            raise InputError(f"{self.what} '{name}': there is one of that name, expected another name")
        mine[name] = _Added(what)

    def others(self) -> dict[str, EntryPoint | _Added]:
        """Return the extensions of other packages and of this program, by name."""
        found: dict[str, EntryPoint | _Added] = {
            point.name: point for point in entry_points(group=self.group)
        } | _added.get(self.group, {})
        return {name: found[name] for name in sorted(found) if name not in self.built_in}

    def __iter__(self) -> Iterator[str]:
        """Yield all names, those of other packages last."""
        yield from self.built_in
        yield from self.others()

    def __len__(self) -> int:
        return len(self.built_in) + len(self.others())

    def __contains__(self, name: object) -> bool:
        """Tell whether a name is known; searches other packages only if it is not built in."""
        # In this order: scanning the installed packages takes 30 ms.
        return name in self.built_in or name in self.others()

    def load(self, name: str, built_in: Mapping[str, str]) -> Any:
        """Return what a name stands for.

        Args:
            name: What was asked for.
            built_in: Name -> "module:attribute" of those that are built in.

        Raises:
            InputError: there is none of that name, or it cannot be loaded.
        """
        if name in built_in:
            module, _, attribute = built_in[name].partition(":")
            return getattr(importlib.import_module(module), attribute)
        others = self.others()
        if name not in others:
            known = (*built_in, *others)
            raise InputError(f"no {self.what} '{name}', expected {one_of(known)}{nearest(name, known)}")
        try:
            return others[name].load()
        except Exception as error:  # whatever another package does when it is imported
            raise InputError(f"{self.what} '{name}' cannot be loaded: {error}") from error

    def load_class(self, name: str, built_in: Mapping[str, str], base: type[T]) -> type[T]:
        """Return the class that a name stands for: `load`, with a check.

        Raises:
            InputError: there is none of that name, it cannot be loaded, or it is no subclass of `base`.
        """
        # A package may register anything under the entry point.
        found = self.load(name, built_in)
        if not (isinstance(found, type) and issubclass(found, base)):
            raise InputError(f"{self.what} '{name}' is {found!r}, expected a subclass of {base.__name__}")
        return found

    def create(self, name: str, make: Callable[[], object], kind: type[T]) -> T:
        """Return what the method `create` of another package makes; `make` calls it.

        Raises:
            InputError: it fails, or returns no `kind`.
        """
        with self.guard(name):
            made = make()
        if not isinstance(made, kind):
            raise InputError(
                f"{self.what} '{name}': create returned {show(made)}, expected a {kind.__name__}"
            )
        return made

    @contextmanager
    def guard(self, name: str) -> Iterator[None]:
        """Turn an exception of the code behind a name into one line, if it belongs to another package.

        User errors, file errors and memory shortages pass through; a sweep reports the latter as a separate row. Our
        own mistakes keep their traceback.

        Raises:
            InputError: names the extension and what it raised.
        """
        try:
            yield
        except (ArmillaryError, OSError, MemoryError):
            raise
        except Exception as error:
            # A mistake of ours: its traceback is what helps to mend it.
            if name in self.built_in:
                raise
            raise InputError(f"{self.what} '{name}' failed: {type(error).__name__}: {error}") from error
