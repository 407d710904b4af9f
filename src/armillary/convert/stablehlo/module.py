"""Make a module of HLO of StableHLO: functions and regions become computations, captured values their parameters.

What stands outside of ``sdy.manual_computation`` (or the functions that XLA's older custom calls put into shards) has
the shapes of the whole program: its work is that of all partitions together.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from math import prod

from armillary.base.errors import InputError, nearest
from armillary.convert.hlo.module import Computation, Instruction, Module
from armillary.convert.hlo.parse import callees_first
from armillary.convert.hlo.shapes import Shape
from armillary.convert.hlo.source import Source
from armillary.convert.stablehlo.attributes import attributes, pairs_of_message
from armillary.convert.stablehlo.fusion import Fusion
from armillary.convert.stablehlo.operations import Operation, Region, parse
from armillary.convert.stablehlo.types import operands, result_shapes, shape, split

_RETURNS = frozenset(("return", "func.return", "stablehlo.return", "mhlo.return", "sdy.return"))
_OPCODES = {
    "broadcast_in_dim": "broadcast", "dynamic_broadcast_in_dim": "broadcast", "dot_general": "dot", "if": "conditional",
    "case": "conditional", "create_token": "after-all", "real_dynamic_slice": "dynamic-slice",
    "optimization_barrier": "opt-barrier", "top_k": "topk", "dynamic_iota": "iota", "torch_index_select": "gather",
    "uniform_quantize": "convert", "uniform_dequantize": "convert", "dynamic_conv": "convolution",
    "sharding_constraint": "bitcast", "reshard": "bitcast", "dynamic_gather": "gather", "dynamic_pad": "pad",
}  # fmt: skip
_SYMBOL = re.compile(r"@\"?([\w.$\-]+)")
_ARGUMENT = re.compile(r"%([\w.$\-]+)\s*:\s*(.*)", re.S)
_AXES = re.compile(r"\"([^\"]+)\"\s*=\s*(\d{1,9})")
_SHARDED = re.compile(
    r"mhlo\.sharding\s*=\s*\"\{[^\"]*devices=|sdy\.sharding[^\n]{0,40}<@[\w.$\-]+,\s*\[[^\]\n]*\"|sharding_constraint"
)
_DEEPEST = 100
_SHARDS = re.compile(r"SPMDFullToShardShape")
Values = dict[str, Instruction]


class Program:
    """The module of a program, and what is shared between partitions."""

    def __init__(self, source: Source) -> None:
        """Translate a program.

        Raises:
            InputError: with line and column, it is none, or has what HLO does not know.
        """
        self.source = source
        top = parse(source)
        outer = next((each for each in top if each.name in ("module", "builtin.module")), None)
        inside = outer.regions[0].operations if outer and outer.regions else top
        self.functions: dict[str, Operation] = {}
        self.mesh: dict[str, int] = {}
        for each in inside:
            symbol = _SYMBOL.search(each.text)
            if each.name in ("func.func", "func") and symbol:
                self.functions[symbol[1]] = each
            elif each.name == "sdy.mesh":
                self.mesh |= {name: int(size) for name, size in _AXES.findall(each.text)}
        if not self.functions:
            source.fail(
                0, "no function in it, expected StableHLO: what jax.jit(f).lower(…).as_text() returns"
            )
        counts = {
            ours: found[1]
            if outer and (found := re.search(rf"mhlo\.{theirs}\s*=\s*(\d{{1,9}})", outer.text))
            else "1"
            for ours, theirs in (("replica_count", "num_replicas"), ("num_partitions", "num_partitions"))
        }
        partitions = max(int(counts["num_partitions"]), 1)
        self.share = partitions if partitions > 1 and _SHARDED.search(source.text) else 1
        self.shards = bool(_SHARDS.search(source.text))
        self.shared: dict[Instruction, int] = {}
        """Instructions whose work so many partitions share."""
        self.known: dict[str, Computation] = {}
        self._calls: list[str] = []
        self._free: dict[int, tuple[str, ...]] = {}
        self._number = 0
        entry = "main" if "main" in self.functions else next(iter(self.functions))
        name = self._function(entry, self.share, 0)
        named = _SYMBOL.search(outer.text) if outer else None
        self.module = Module(named[1] if named else entry, source, counts, self.known, self.known[name])
        self.module.computations = callees_first(self.module)
        Fusion(self.module, self.shared).run()

    def _function(self, name: str, share: int, at: int) -> str:
        """Return the computation of a function whose work so many partitions share."""
        if name not in self.functions:
            self.source.fail(
                at, f"calls '{name[:60]}', which is no function here{nearest(name, self.functions)}"
            )
        made = name if share == self.share else f"{name}.{share}"
        if made in self._calls:
            self.source.fail(at, f"'{name[:60]}' calls itself, expected functions without recursion")
        if made not in self.known:
            function = self.functions[name]
            if not function.regions:
                self.source.fail(function.at, f"'{name[:60]}' is only declared, expected its body")
            first = function.text.index("(")
            given = self._arguments(function.text[first + 1 : _closing(function.text, first)], function.at)
            self._calls.append(made)
            if len(self._calls) > _DEEPEST:
                self.source.fail(at, f"calls are nested deeper than {_DEEPEST}")
            self._region(made, function.regions[0], given, {}, share, function.at)
            self._calls.pop()
        return made

    def _arguments(self, text: str, at: int) -> list[tuple[str, Shape]]:
        """Return names and shapes of ``%a: tensor<…> {…}, …``."""
        found = []
        for each in split(text):
            match = _ARGUMENT.fullmatch(each)
            if match is None:
                self.source.fail(
                    at, f"found '{each[:40]}', expected an argument such as %arg0: tensor<8xf32>"
                )
            try:
                found.append((match[1], shape(re.split(r"\s(?=\{|loc\()", match[2], maxsplit=1)[0])))
            except InputError as error:
                self.source.fail(at, str(error))
        return found

    def _region(
        self, name: str, region: Region, given: Sequence[tuple[str, Shape]], outside: Values, share: int, at: int,
        *, whole: bool = False, captured: Sequence[str] = (), returned: bool = False,
    ) -> str:  # fmt: skip
        """Add the computation of a region and return its name.

        Args:
            name: the computation's.
            region: its operations.
            given: names and shapes of its arguments.
            outside: values around it.
            share: how many partitions share its work.
            at: where it stands.
            whole: whether its arguments are the elements of one tuple.
            captured: names of values around it that it is given, too.
            returned: whether it returns these as well.
        """
        made = Computation(name, at)
        self.known[name] = made
        shapes = [*(each for _, each in given), *(outside[each].shape for each in captured)]
        values: Values = {}
        if whole:
            state = self._add(made, "parameter", Shape(parts=tuple(shapes)), (), {}, at, "0")
            made.parameters[0] = state
            parts = [self._element(made, state, number, each, at) for number, each in enumerate(shapes)]
        else:
            parts = [self._add(made, "parameter", each, (), {}, at, str(n)) for n, each in enumerate(shapes)]
            made.parameters = dict(enumerate(parts))
        values |= zip([*(each for each, _ in given), *captured], parts, strict=True)
        results: list[Instruction] | None = None
        for operation in region.operations:
            if operation.name in _RETURNS:
                results = [self._value(operation, each, values) for each in operands(operation)]
                break
            self._operation(made, operation, values, share)
        if results is None:
            self.source.fail(at, "a region without a return, expected one at its end")
        results += [values[each] for each in captured] if returned else []
        if len(results) == 1 and not returned:
            made.root = results[0]
        else:
            parts_of = Shape(parts=tuple(each.shape for each in results))
            made.root = self._add(made, "tuple", parts_of, tuple(results), {}, at)
        return name

    def _value(self, operation: Operation, name: str, values: Values) -> Instruction:
        if name not in values:
            self.source.fail(
                operation.at, f"'%{name[:40]}' has no value here{nearest(name, list(values)[-200:])}"
            )
        return values[name]

    def _add(
        self, made: Computation, opcode: str, of: Shape, given: tuple[Instruction, ...], found: Mapping[str, str],
        at: int, argument: str = "",
    ) -> Instruction:  # fmt: skip
        self._number += 1
        one = Instruction(f"{opcode}.{self._number}", opcode, of, given, argument, found, (), at)
        made.instructions.append(one)
        return one

    def _element(self, made: Computation, whole: Instruction, number: int, of: Shape, at: int) -> Instruction:
        return self._add(made, "get-tuple-element", of, (whole,), {"index": str(number)}, at)

    def _fresh(self, what: str) -> str:
        self._number += 1
        return f"{what}.{self._number}"

    def _operation(self, made: Computation, operation: Operation, values: Values, share: int) -> None:
        if not operation.results and operation.name.startswith("sdy."):
            return
        bare = operation.name.rpartition(".")[2]
        opcode = _OPCODES.get(bare, bare.replace("_", "-"))
        given = tuple(self._value(operation, each, values) for each in operands(operation))
        try:
            shapes = result_shapes(operation)
            found = attributes(opcode, operation, [each.shape for each in given])
        except InputError as error:
            self.source.fail(operation.at, str(error))
        of = shapes[0] if len(shapes) == 1 else Shape(parts=tuple(shapes))
        if opcode == "while":
            one = self._loop(made, operation, given, of, values, share)
        elif opcode == "conditional":
            one = self._branch(made, operation, given, of, values, share)
        elif opcode in ("call", "composite", "manual-computation"):
            callee, more = self._callee(operation, opcode, given, values, share)
            one = self._add(made, "call", of, (*given, *more), {"to_apply": callee}, operation.at)
        else:
            found |= self._applied(opcode, operation, given, values, share)
            found = pairs_of_message(found) if opcode in ("send", "recv") else found
            text = re.search(r"dense<([^<>\[\]\"]{1,40})>", operation.text) if opcode == "constant" else None
            one = self._add(made, opcode, of, given, found, operation.at, text[1].strip() if text else "")
            if share > 1:
                self.shared[one] = share
        if len(shapes) == 1 and opcode != "while":
            values[operation.results[0]] = one
        else:
            for number, (name, each) in enumerate(zip(operation.results, shapes, strict=True)):
                values[name] = self._element(made, one, number, each, operation.at)

    def _loop(
        self, made: Computation, operation: Operation, given: tuple[Instruction, ...], of: Shape, values: Values,
        share: int,
    ) -> Instruction:  # fmt: skip
        if len(operation.regions) != 2:
            self.source.fail(
                operation.at, f"a loop of {len(operation.regions)} regions, expected cond and do"
            )
        names = self._names(operation)
        if len(names) != len(given):
            self.source.fail(operation.at, f"a loop of {len(names)} arguments and {len(given)} values")
        state = [(name, each.shape) for name, each in zip(names, given, strict=True)]
        captured = self._captured(operation, values)
        first = (*given, *(values[each] for each in captured))
        whole = Shape(parts=tuple(each.shape for each in first))
        start = self._add(made, "tuple", whole, first, {}, operation.at)
        condition, body = (
            self._region(self._fresh(what), region, state, values, share, operation.at, whole=True, captured=captured,
                         returned=what == "body")
            for what, region in zip(("condition", "body"), operation.regions, strict=True)
        )  # fmt: skip
        return self._add(made, "while", whole, (start,), {"condition": condition, "body": body}, operation.at)

    def _branch(
        self, made: Computation, operation: Operation, given: tuple[Instruction, ...], of: Shape, values: Values,
        share: int,
    ) -> Instruction:  # fmt: skip
        captured = self._captured(operation, values)
        inside = tuple(values[each] for each in captured)
        held = self._add(
            made, "tuple", Shape(parts=tuple(each.shape for each in inside)), inside, {}, operation.at
        )
        names = [
            self._region(
                self._fresh("branch"), each, (), values, share, operation.at, whole=True, captured=captured
            )
            for each in operation.regions
        ]
        found = {"branch_computations": "{" + ", ".join(names) + "}"}
        if operation.name.endswith("if") and len(names) == 2:
            found = {"true_computation": names[0], "false_computation": names[1]}
        return self._add(made, "conditional", of, (*given[:1], *[held] * len(names)), found, operation.at)

    def _callee(
        self, operation: Operation, opcode: str, given: tuple[Instruction, ...], values: Values, share: int
    ) -> tuple[str, tuple[Instruction, ...]]:
        """Return the computation that is called, and what it is given besides the operands."""
        if opcode == "manual-computation":
            listed = re.search(r"manual_axes\s*=\s*\{([^}]*)\}", operation.text)
            axes = re.findall(r"\"([^\"]+)\"", listed[1]) if listed else []
            inside = max(share // max(prod(self.mesh.get(each, 1) for each in axes), 1), 1)
            # Its arguments stand before the region, in the last brackets.
            before = operation.text.rpartition("{}")[0]
            block = operation.regions[0].arguments if operation.regions else ""
            text = block or before[before.rfind("(%") + 1 :].rpartition(")")[0]
            arguments = self._arguments(text, operation.at)
            if len(arguments) != len(given) or len(operation.regions) != 1:
                self.source.fail(
                    operation.at, f"{len(given)} operands of a region of {len(arguments)} arguments"
                )
            captured = self._captured(operation, values)
            name = self._region(self._fresh("manual"), operation.regions[0], arguments, values, inside, operation.at,
                                captured=captured)  # fmt: skip
            return name, tuple(values[each] for each in captured)
        symbol = re.search(r"decomposition\s*=\s*@\"?([\w.$\-]+)", operation.text) or _SYMBOL.search(
            operation.text
        )
        if symbol is None:
            self.source.fail(operation.at, "a call without the name of a function, expected @name")
        local = self.shards and symbol[1] in self.functions and self._is_shard(symbol[1])
        return self._function(symbol[1], 1 if local else share, operation.at), ()

    def _is_shard(self, name: str) -> bool:
        return name.startswith("shmap_body") or any(
            "replica_groups" in each.text or "source_target_pairs" in each.text
            for each in self.functions[name].regions[0].operations
        )

    def _applied(
        self, opcode: str, operation: Operation, given: tuple[Instruction, ...], values: Values, share: int
    ) -> dict[str, str]:
        """Return the computations that an operation applies to elements."""
        if simple := re.search(r"\bapplies\s+(?:stablehlo|mhlo)\.(\w+)", operation.text):
            element = Shape(given[0].shape.bits) if given else Shape(32)
            computation = Computation(self._fresh("applied"), operation.at)
            parts = tuple(
                self._add(computation, "parameter", element, (), {}, operation.at, str(at)) for at in range(2)
            )
            computation.parameters = dict(enumerate(parts))
            name = _OPCODES.get(simple[1], simple[1].replace("_", "-"))
            computation.root = self._add(computation, name, element, parts, {}, operation.at)
            self.known[computation.name] = computation
            return {"to_apply": computation.name}
        found = {}
        names = ("select", "scatter") if opcode == "select-and-scatter" else ("to_apply",)
        for name, region in zip(names, operation.regions, strict=False):
            text = region.arguments
            if not text and (reducer := re.search(r"\breducer\(", operation.text)):
                text = operation.text[reducer.end() : _closing(operation.text, reducer.end() - 1)]
            arguments = self._arguments(text.replace(") (", ", "), operation.at)
            captured = self._captured(operation, values)
            found[name] = self._region(
                self._fresh("applied"), region, arguments, values, 1, operation.at, captured=captured
            )
        return found

    def _names(self, operation: Operation) -> list[str]:
        """Return the names of a loop's arguments, which both of its regions have."""
        if block := operation.regions[0].arguments:
            return [name for name, _ in self._arguments(block, operation.at)]
        return re.findall(r"%([\w.$\-]+)\s*=\s*%", operation.text)

    def _captured(self, operation: Operation, values: Values) -> list[str]:
        """Return the names of values around an operation that its regions take."""
        own = set(re.findall(r"%([\w.$\-]+)\s*[:=]", operation.text))
        used = dict.fromkeys(each for region in operation.regions for each in self._uses(region))
        return [name for name in used if name in values and name not in own]

    def _uses(self, region: Region) -> tuple[str, ...]:
        if id(region) not in self._free:
            inside = set(re.findall(r"%([\w.$\-]+)\s*:", region.arguments))
            used: dict[str, None] = {}
            for each in region.operations:
                own = set(re.findall(r"%([\w.$\-]+)\s*[:=]", each.text)) if each.regions else set()
                more = (name for inner in each.regions for name in self._uses(inner) if name not in own)
                used |= dict.fromkeys(name for name in (*operands(each), *more) if name not in inside)
                inside |= set(each.results)
            self._free[id(region)] = tuple(used)
        return self._free[id(region)]


def _closing(text: str, at: int) -> int:
    """Return where the bracket that opens at a place closes."""
    depth = 0
    for match in re.finditer(r"[()]", text[at:]):
        depth += 1 if match[0] == "(" else -1
        if not depth:
            return at + match.start()
    return len(text)
