"""Phrases shared by errors: the nearest valid choice, the list of choices, a value and its place; and their format."""

from __future__ import annotations

import difflib
import re
import reprlib
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice

from armillary.base.text import COMMANDS

KeyPath = tuple[str | int, ...]
"""A place in a document: mapping keys and list positions, outermost first."""
_SHORT = reprlib.Repr()  # stays short where YAML aliases make a value endless
_SHORT.maxstring = _SHORT.maxlong = _SHORT.maxother = 60
_LONGEST_WORD = 100
_MOST_CHOICES = 4
_MOST_SPELLED = 2000
"""Choices that are compared letter by letter, 0.1 s: a file of others may have 200,000 columns."""
_ALIKE = 0.5
"""Of `difflib`: 1 is the same word."""
_TYPO = 0.9
"""One letter in ten."""
_COUNT = re.compile(
    r"\s*(\d{1,3}(?:[,_]\d{3}){1,4}|\d{1,12}(?:\.\d{1,6})?)\s*(?:[eE]\+?(\d|1[0-5])|([kKmMgGtT]i?))?\s*"
)
_DIMENSION = "with topology {} in its network"
Synonyms = Mapping[str, tuple[tuple[str, str], ...]]
SYNONYMS: Synonyms = {
    "torus": (("Torus", ""), ("dimensions", _DIMENSION.format("Torus"))),
    "ring": (("Ring", ""), ("ring", ""), ("dimensions", _DIMENSION.format("Ring"))),
    "mesh": (("Mesh", ""), ("dimensions", _DIMENSION.format("Mesh"))),
    "line": (("Mesh", ""), ("dimensions", _DIMENSION.format("Mesh"))),
    "grid": (("Mesh", ""), ("dimensions", _DIMENSION.format("Mesh"))),
    "2dtorus": (("Torus", ""), ("dimensions", _DIMENSION.format("Torus"))),
    "3dtorus": (("Torus", ""), ("dimensions", _DIMENSION.format("Torus"))),
    "2dmesh": (("Mesh", ""), ("dimensions", _DIMENSION.format("Mesh"))),
    "3dmesh": (("Mesh", ""), ("dimensions", _DIMENSION.format("Mesh"))),
    "switch": (("Switch", ""), ("dimensions", _DIMENSION.format("Switch"))),
    "nvswitch": (("Switch", ""), ("dimensions", _DIMENSION.format("Switch"))),
    "crossbar": (("Switch", ""), ("dimensions", _DIMENSION.format("Switch"))),
    "star": (("Switch", ""), ("dimensions", _DIMENSION.format("Switch"))),
    "fullyconnected": (("FullyConnected", ""), ("dimensions", _DIMENSION.format("FullyConnected"))),
    "fc": (("FullyConnected", ""), ("dimensions", _DIMENSION.format("FullyConnected"))),
    "clique": (("FullyConnected", ""), ("dimensions", _DIMENSION.format("FullyConnected"))),
    "clos": (("leaf-spine", "or fat-tree"),),
    "spineleaf": (("leaf-spine", ""),),
    "fattree": (("fat-tree", ""),),
    "rail": (("rail-optimised", ""),),
    "wafer": (("wafer-mesh", ""),),
    "fluid": (("flow", ""),),
    "maxmin": (("flow", ""),),
    "congestionaware": (("congestion", ""),),
    "congestionunaware": (("analytical", ""),),
    "htsim": (("packet", ""),),
    "roce": (("lossless", ""),),
    "infiniband": (("lossless", "or credit"),),
    "ethernet": (("lossless", "or tcp"),),
    "matmul": (("gemm", ""),),
    "adamw": (("adam", ""),),
}
"""Terms of other programs, in lower case without hyphens -> (choice, note); the first choice that exists counts."""
_FIRST, _LAST = 700, 500


def one_line(message: str) -> str:
    """Return `message` on one line that any terminal can show; a long one, which quotes a value, loses its middle."""
    # A newline and a tab command nothing, but are no part of one line.
    spelled = re.sub(
        f"{COMMANDS.pattern}|[\t\n]", lambda found: found[0].encode("unicode_escape").decode(), _cut(message)
    )
    # Again: what is spelled out is six times as long.
    return _cut(spelled)


def _cut(message: str) -> str:
    return f"{message[:_FIRST]} … {message[-_LAST:]}" if len(message) > _FIRST + _LAST else message


def nearest(
    word: str, choices: Iterable[str], synonyms: Synonyms | None = None, alike: float = _ALIKE
) -> str:
    """Return ``" (did you mean 'x'?)"`` for the choice closest to `word`, or an empty string.

    Case, hyphens, underscores and blanks make no difference. Terms of other programs come before choices that begin
    with the word, and these before choices that are spelled alike, to a share `alike` of `difflib`.
    """
    word, choices = word[:_LONGEST_WORD], list(dict.fromkeys(choices))
    plain = _plain(word)
    # From the surest guess to the weakest; the first that finds something answers.
    same = [choice for choice in choices if _plain(choice) == plain]
    if same:
        return did_you_mean(same[:1])
    for meant, note in (SYNONYMS if synonyms is None else synonyms).get(plain, ()):
        if meant in choices:
            return did_you_mean([meant], note)
    begun = [choice for choice in choices if len(plain) > 1 and _plain(choice).startswith(plain)]
    if 1 <= len(begun) <= _MOST_CHOICES:
        return did_you_mean(begun)
    # Reversed, so that of equal spellings the first choice stays.
    of_plain = {_plain(choice): choice for choice in reversed(choices[:_MOST_SPELLED])}
    match = difflib.get_close_matches(plain, list(of_plain), n=1, cutoff=alike)
    return did_you_mean([of_plain[each] for each in match])


def misspelt(word: str, choices: Iterable[str]) -> str:
    """Return ``" (did you mean 'x'?)"`` for the choice that is a typo away, or an empty string.

    Unlike with `nearest`, a word of its own, such as ``attention_bias`` for ``mlp_bias``, is none.
    """
    some = list(islice(choices, _MOST_SPELLED))
    return did_you_mean(difflib.get_close_matches(word[:_LONGEST_WORD], some, n=1, cutoff=_TYPO))


def did_you_mean(choices: Sequence[str], note: str = "") -> str:
    """Return ``" (did you mean 'x' or 'y', note?)"``, or an empty string for no choices."""
    text = " or ".join(f"'{choice}'" for choice in choices)
    return f" (did you mean {text}{f', {note}' if note else ''}?)" if choices else ""


def whole_number(text: str) -> str:
    """Return how a count such as ``4k`` is written, `` (write 4000, or 4096)``; an empty string for other texts."""
    match = _COUNT.fullmatch(text)
    if match is None:
        return ""
    number, power, prefix = match[1].replace(",", "").replace("_", ""), match[2], (match[3] or "").lower()
    if power:
        bases: tuple[int, ...] = (10 ** int(power),)
    elif prefix:
        # 4k is 4000 to some and 4096 to others, so both are named; 4Ki is only 4096.
        bases = tuple(base ** (1 + "kmgt".index(prefix[0])) for base in (1000, 1024)[prefix.endswith("i") :])
    else:
        bases = (1,)
    found = [f"{value:.0f}" for base in bases if (value := float(number) * base).is_integer()]
    return f" (write {', or '.join(found)})" if found and found != [text] else ""


def _plain(word: str) -> str:
    return re.sub(r"[-_\s]", "", word).casefold()


def one_of(choices: Iterable[str]) -> str:
    """Return the choices as a phrase for an error message."""
    return "one of " + ", ".join(choices)


def key_text(path: KeyPath) -> str:
    """Return a key path as people write it, e.g. ``npus_count[0]`` or ``platform.npu.peak``."""
    text = ""
    for part in path:
        if isinstance(part, int):
            text += f"[{part}]"
        else:
            name = str(part)
            text += ("." if text else "") + (name if name.isprintable() else repr(name))
    return text


def show(value: object) -> str:
    """Return a short form of a value for an error message."""
    text = "nothing" if value is None else _SHORT.repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
