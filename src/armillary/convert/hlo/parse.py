"""Parse HLO text to a module.

Grammar: https://openxla.org/xla/hlo_text_format and what XLA's printer writes, with and without ``%`` and types.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NoReturn

from armillary.base.errors import nearest
from armillary.convert.hlo.module import CALLS, Computation, Instruction, Module
from armillary.convert.hlo.shapes import Shapes
from armillary.convert.hlo.source import HOW, Source

_MODULE = re.compile(r"^[ \t]*HloModule[ \t]+%?([^\s,]+)", re.M)
# Source locations, which newer printers put into tables between the computations.
_TABLE = re.compile(
    r"(?:FileNames|FunctionNames|FileLocations|StackFrames)[ \t]*\n(?:[ \t]*\d+ [^\n]*(?:\n|\Z))*"
)
_BLANK = re.compile(r"(?:\s+|//[^\n]*)*+")
_HEAD = re.compile(r"(ENTRY\s+)?%?([\w.\-]+)[ \t]*(?=[({])")
_ARROW = re.compile(r"\s*->\s*")
_OPEN = re.compile(r"\s*\{[ \t]*(?=\n)")
_NAME = re.compile(r"(ROOT[ \t]+)?%?([\w.\-]+)[ \t]*=[ \t]*")
_OPCODE = re.compile(r"[ \t]*([a-z][\w\-]*)\(")
# The common case, operands without a bracket or text in quotes, takes one match; `matching` takes the others.
_PLAIN = re.compile(r"([^(){}\[\]\"\n]*)\)")
_LISTED = re.compile(r"[\w.\-]+")
# Again the common values by one match; quantifiers are possessive, so that a value that fits none of them
# fails without backtracking. `_NESTED` begins the values that nest deeper.
_ATTRIBUTE = re.compile(
    r"""\s*,\s*([A-Za-z_][\w\-]*)=(
        "(?:[^"\\\n]|\\.)*+"
      | \{(?:[^{}"\n]|"(?:[^"\\\n]|\\.)*+")*+\}
      | \[[\d,]*\](?:<=\[[\d,]*\](?:T\([\d,]*\))?)?
      | @?mesh[\[<][^\]>\n]*[\]>](?:,[ ]?device_ids=\([^{\n]*\))?(?:[ ]?\{[^{}\n]*\})?
      | [^\s,{}()"\[\]]++(?=[,\s]|\Z)
    )""",
    re.X,
)
_NESTED = re.compile(r"\s*,\s*([A-Za-z_][\w\-]*)=(?=[{(\[])")
_BRACKET = re.compile(r"[(){}\[\]]|\"(?:[^\"\\\n]|\\.)*+\"?")
_END = re.compile(r"[ \t]*(?:\n|\Z)")
_PAIRS = {"(": ")", "{": "}", "[": "]"}
_CALLS = frozenset(CALLS)


def parse(source: Source) -> Module:
    """Return the module that the text describes.

    Raises:
        InputError: with line and column, the text is not that of one module.
    """
    return _Parser(source).module()


class _Parser:
    """Reads from left to right; `at` is the offset of the next character."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.text = source.text
        self.shapes = Shapes(source)
        self.at = 0

    def module(self) -> Module:
        # Searched for, as a file may begin with lines of a log.
        match = _MODULE.search(self.text)
        if match is None:
            self.source.fail(0, f"no 'HloModule' here, found {self.source.excerpt(0)}; expected {HOW}")
        self.at = match.end()
        attributes = self.attributes()
        computations: dict[str, Computation] = {}
        entry = None
        while True:
            self.skip_blank()
            if self.at >= len(self.text):
                break
            table = _TABLE.match(self.text, self.at)
            if table:
                self.at = table.end()
                continue
            start = self.at
            computation, is_entry = self.computation()
            if computation.name in computations:
                self.source.fail(start, f"computation '{computation.name}' stands here again")
            if is_entry and entry is not None:
                self.source.fail(start, f"a second ENTRY, expected only '{entry.name}'")
            computations[computation.name] = computation
            entry = computation if is_entry else entry
        if entry is None:
            self.source.fail(self.at, "the file ends without an ENTRY computation, expected one")
        module = Module(match[1], self.source, attributes, computations, entry)
        module.computations = callees_first(module)
        return module

    def skip_blank(self) -> None:
        match = _BLANK.match(self.text, self.at)
        self.at = match.end() if match else self.at

    def computation(self) -> tuple[Computation, bool]:
        head = _HEAD.match(self.text, self.at)
        if head is None:
            self.fail("a computation such as 'ENTRY main {'")
        computation = Computation(head[2], self.at)
        self.at = head.end()
        # Signature, (x: f32[]) -> f32[]: optional, and repeated by the parameters and the root.
        if self.text[self.at] == "(":
            self.at = self.matching(self.at)
            arrow = _ARROW.match(self.text, self.at)
            if arrow:
                self.at = self.shapes.read(arrow.end())[1]
        opening = _OPEN.match(self.text, self.at)
        if opening is None:
            self.fail("'{' and a line for each instruction")
        self.at = opening.end()
        known: dict[str, Instruction] = {}
        while True:
            self.skip_blank()
            if self.text.startswith("}", self.at):
                break
            self.instruction(computation, known)
        if not computation.instructions:
            self.fail("an instruction")
        self.at += 1
        self.attributes()
        return computation, head[1] is not None

    def instruction(self, computation: Computation, known: dict[str, Instruction]) -> None:
        start = self.at
        name = _NAME.match(self.text, start)
        if name is None:
            self.fail(
                f"an instruction such as '%x = f32[8] add(%a, %b)', or '}}' to end '{computation.name}'"
            )
        shape, self.at = self.shapes.read(name.end())
        opcode = _OPCODE.match(self.text, self.at)
        if opcode is None:
            self.fail("an opcode and '('")
        first = self.at = opcode.end()
        plain = _PLAIN.match(self.text, first)
        self.at = plain.end() if plain else self.matching(first - 1)
        argument = self.text[first : self.at - 1]
        operands: tuple[Instruction, ...] = ()
        # Those have a number or a literal in the parentheses.
        if opcode[1] not in ("parameter", "constant"):
            operands = tuple(self.operand(word, first, known) for word in _operand_names(argument))
        # Most instructions of a fusion have no attribute: this spares a call for each.
        attributes = {} if self.text.startswith("\n", self.at) else self.attributes()
        earlier = _LISTED.findall(attributes.get("control-predecessors", ""))
        predecessors = tuple(self.operand(word, first, known) for word in earlier)
        found = Instruction(
            name[2], opcode[1], shape, operands, argument.strip(), attributes, predecessors, start
        )
        if known.setdefault(found.name, found) is not found:
            self.source.fail(start, f"instruction '{found.name}' stands in '{computation.name}' again")
        computation.instructions.append(found)
        if name[1]:
            if computation.root is not None:
                self.source.fail(start, f"a second ROOT, expected only '{computation.root.name}'")
            computation.root = found
        if found.opcode == "parameter":
            self.parameter(found, computation)

    def parameter(self, found: Instruction, computation: Computation) -> None:
        number = int(found.argument) if re.fullmatch(r"[0-9]{1,9}", found.argument) else -1
        if number < 0 or number in computation.parameters:
            self.source.fail(found.at, f"parameter '{found.argument}', expected a number that is not taken")
        computation.parameters[number] = found

    def operand(self, word: str, first: int, known: dict[str, Instruction]) -> Instruction:
        found = known.get(word)
        if found is None:
            # Only to point the message at the word.
            at = max(self.text.find(word, first, self.at), first)
            self.source.fail(at, f"operand '{word}' is not defined above{nearest(word, known)}")
        return found

    def attributes(self) -> dict[str, str]:
        """Read ``, key=value`` up to the end of the line."""
        found: dict[str, str] = {}
        text, at = self.text, self.at
        while True:
            match = _ATTRIBUTE.match(text, at)
            if match:
                found[match[1]] = match[2]
                at = match.end()
                continue
            nested = _NESTED.match(text, at)
            if nested is None:
                break
            first = at = nested.end()
            at = self.matching(at)
            while at < len(text) and text[at] not in ",\n \t":  # such as {…}->{…} and [2]<=[8]T(0)
                at = self.matching(at) if text[at] in "({[" else at + 1
            found[nested[1]] = text[first:at]
        self.at = at
        end = _END.match(text, at)
        if end is None:
            self.fail("', attribute=value' or the end of the line")
        self.at = end.end()
        return found

    def matching(self, at: int) -> int:
        """Return the position after the bracket that closes the one at `at`."""
        open_brackets: list[str] = []
        for match in _BRACKET.finditer(self.text, at):
            mark = match[0]
            if mark in _PAIRS:
                open_brackets.append(_PAIRS[mark])
            elif mark[0] != '"':
                # The first bracket is an open one, so the stack is not empty before the function returns.
                if mark != open_brackets.pop():
                    break
                if not open_brackets:
                    return match.end()
            elif len(mark) == 1 or mark[-1] != '"':
                self.source.fail(match.start(), "text in quotes does not end on its line")
        return self.source.fail(at, f"'{self.text[at]}' is not closed")

    def fail(self, expected: str) -> NoReturn:
        self.source.fail(self.at, f"found {self.source.excerpt(self.at)}, expected {expected}")


def _operand_names(argument: str) -> Iterable[str]:
    """Yield the names in a list of operands, which may have their types before them."""
    # a, %b: no types.
    if "[" not in argument and "(" not in argument:
        words = argument.split(",") if argument.strip() else []
        return [word.strip().rpartition(" ")[2].removeprefix("%") for word in words]
    # f32[8]{0} %a: types have no percent sign.
    if "%" in argument:
        return re.findall(r"%([\w.\-]+)", argument)
    # f32[8]{1,0} a, (f32[], s32[]) b: split at the commas that are in no bracket.
    names, depth, first = [], 0, 0
    for match in re.finditer(r"[(){}\[\],]", argument):
        if match[0] in "({[":
            depth += 1
        elif match[0] in ")}]":
            depth -= 1
        elif depth == 0:
            names.append(argument[first : match.start()])
            first = match.end()
    return [name.strip().rpartition(" ")[2] for name in [*names, argument[first:]]]


def callees_first(module: Module) -> dict[str, Computation]:
    """Return the computations in topological order: each after all that it calls."""
    source, known = module.source, module.computations
    calls: dict[str, dict[str, int]] = {}
    for computation in known.values():
        named = calls[computation.name] = {}
        for instruction in computation.instructions:
            for attribute in instruction.attributes.keys() & _CALLS:
                for name in instruction.called(attribute):
                    if name not in known:
                        source.fail(
                            instruction.at,
                            f"{attribute}= names '{name}', which is no computation{nearest(name, known)}",
                        )
                    named.setdefault(name, instruction.at)
    done: dict[str, Computation] = {}
    for first in known:
        # Depth-first search with a stack of its own, as Python's is too short for deep modules.
        path = [(first, iter(calls[first].items()))]
        on_path = {first}
        while path and first not in done:
            name, rest = path[-1]
            for callee, at in rest:
                if callee in on_path:
                    source.fail(at, f"'{callee}' calls itself, expected computations without recursion")
                if callee not in done:
                    path.append((callee, iter(calls[callee].items())))
                    on_path.add(callee)
                    break
            else:
                path.pop()
                on_path.discard(name)
                done[name] = known[name]
    return done
