"""HLO text in all the ways in which it is written, and messages about text that is not HLO."""

from __future__ import annotations

from pathlib import Path

import pytest

from armillary.base.errors import InputError
from armillary.convert.hlo.module import Module
from armillary.convert.hlo.parse import parse
from armillary.convert.hlo.shapes import Shapes
from armillary.convert.hlo.source import Source, read


def module(text: str) -> Module:
    return parse(Source(text, "m.hlo"))


@pytest.mark.parametrize(
    ("text", "elements", "size"),
    [
        ("f32[8,64]{1,0}", 512, 2048),
        ("bf16[3]{0:T(256)S(1)}", 3, 6),
        ("pred[]", 1, 1),
        ("s4[7]", 7, 4),
        ("f8e4m3fn[2,2]", 4, 4),
        ("c64[5]", 5, 40),
        ("f32[<=16]", 16, 64),
        ("token[]", 1, 0),
        ("f32[0,7]", 0, 0),
        ("(f32[2]{0}, (s8[3], pred[]), ())", 6, 12),
        ("b(f32[4]{0})", 4, 16),
    ],
)
def test_shapes(text: str, elements: int, size: int) -> None:
    shape, after = Shapes(Source(text, "m")).read(0)
    assert (shape.elements, shape.bytes, after) == (elements, size, len(text))


PLAIN = """HloModule m

add {
  a = f32[8]{0} parameter(0)
  ROOT b = f32[8]{0} add(a, a)
}

ENTRY main {
  p = f32[8]{0} parameter(0)
  t = (f32[8]{0}, f32[8]{0}) tuple(p, p)
  ROOT c = f32[8]{0} call(p), to_apply=add
}
"""
TYPED = """HloModule m, entry_computation_layout={(f32[8]{0})->f32[8]{0}}

%add (a: f32[8]) -> f32[8] {
  %a = f32[8]{0} parameter(0), metadata={op_name="x[\\'w\\'] {(" source_file="a \\"b\\".py" source_line=3}
  ROOT %b = f32[8]{0} add(f32[8]{0} %a, f32[8]{0} %a), backend_config={"a":{"b":["}"]}}
}, execution_thread="host"

// a comment
ENTRY %main (p: f32[8]) -> f32[8] {
  %p = f32[8]{0} parameter(0), sharding={devices=[2,4]<=[4,2]T(1,0) last_tile_dim_replicate}
  %t = (f32[8]{0}, /*index=1*/f32[8]{0}) tuple(f32[8]{0} %p, /*index=1*/f32[8]{0} %p)
  ROOT %c = f32[8]{0} call(f32[8]{0} %p), to_apply=%add
}
"""
TABLES = TYPED.replace(
    "%add (a",
    'FileNames\n1 "step.py"\n\nFileLocations\n1 {file_name_id=1 line=1}\n\nStackFrames\n1 {a=1}\n\n%add (a',
)


@pytest.mark.parametrize("text", [PLAIN, TYPED, TYPED.replace("%", ""), TABLES, TABLES.rstrip("\n")])
def test_the_same_module_however_it_is_printed(text: str) -> None:
    found = module(text)
    assert (found.name, list(found.computations), found.entry.name) == ("m", ["add", "main"], "main")
    assert [i.opcode for i in found.entry.instructions] == ["parameter", "tuple", "call"]
    assert [[o.name for o in i.operands] for i in found.entry.instructions] == [[], ["p", "p"], ["p"]]
    assert found.entry.result.name == "c"
    assert found.callee(found.entry.result, "to_apply").result.name == "b"


def test_callees_come_before_callers_in_any_order_of_the_text() -> None:
    head, add, entry = PLAIN.split("\n\n")
    assert list(module(f"{head}\n\n{entry}\n\n{add}\n").computations) == ["add", "main"]


def test_a_literal_may_take_several_lines() -> None:
    found = module(
        "HloModule m\nENTRY main {\n  ROOT c = s32[2,2]{1,0} constant({ { 1, 2 },\n  { 3, 4 } }), x=1\n}\n"
    )
    assert found.entry.result.argument.startswith("{ { 1")
    assert found.entry.result.attributes == {"x": "1"}


def test_attributes_of_every_form() -> None:
    text = (
        "a={}, b={{0,1},{2,3}}, c=[4,2]<=[2,4]T(1,0), d=mesh['x'=2,'y'=4] {'y'}, e=b01f_01io->b01f, "
        'f="a \\"b\\" }", g={"n":{"m":"}"}}, h=-3, i=%r, j={(f32[2]{0})->f32[2]{0}}, k={[0:1], [2:4]}'
    )
    found = module(f"HloModule m\nENTRY main {{\n  ROOT c = s32[] parameter(0), {text}\n}}\n").entry.result
    want = [part.partition("=") for part in text.replace(", ", "\n").replace("]\n[", "], [").split("\n")]
    assert dict(found.attributes) == {key: value for key, _, value in want}


BODY = PLAIN.split("\n\n")[0] + "\n\nENTRY main {\n  p = f32[8]{0} parameter(0)\n  %s\n}\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "m.hlo:1:1: no 'HloModule' here, found the end of the file"),
        ("HloModule m\n", "without an ENTRY"),
        ("HloModule m\n\nhello\n", "m.hlo:3:1: found 'hello', expected a computation"),
        (BODY % "q = f33[8] add(p, p)", "m.hlo:5:7: element type 'f33' is unknown"),
        (BODY % "q = f32[x] add(p, p)", "m.hlo:5:11: dimension 'x' has no size"),
        (BODY % "q = f32[?] add(p, p)", "m.hlo:5:11: dimension '?' has no size"),
        (BODY % "q = (f32[2] f32[2]) tuple(p, p)", "m.hlo:5:15: found 'f32[2]) tuple(p, p)', expected ',' or ')'"),
        (BODY % "q = f32[8] add(p, pp)", "m.hlo:5:21: operand 'pp' is not defined above (did you mean 'p'?)"),
        (BODY % "q = f32[8] add(p, p", "m.hlo:5:17: '(' is not closed"),
        (BODY % "q = f32[8] add(p, p) x=1", "m.hlo:5:23: found 'x=1', expected ', attribute=value'"),
        (BODY % 'q = f32[8] add(p, p), x={"1', "text in quotes does not end"),
        (BODY % "q f32[8] add(p, p)", "m.hlo:5:3: found 'q f32[8] add(p, p)', expected an instruction"),
        (BODY % "p = f32[8] add(p, p)", "m.hlo:5:3: instruction 'p' stands in 'main' again"),
        (BODY % "q = f32[8] parameter(0)", "m.hlo:5:3: parameter '0', expected a number that is not taken"),
        (BODY % "q = f32[8] call(p), to_apply=mian", "to_apply= names 'mian', which is no computation (did you mean"),
        (BODY % "q = f32[8] call(p), to_apply=main", "'main' calls itself"),
        (PLAIN + PLAIN.split("\n\n")[1], "computation 'add' stands here again"),
        (PLAIN.replace("add {", "ENTRY add {"), "a second ENTRY"),
        (PLAIN.rstrip("}\n"), "expected an instruction"),
    ],
)  # fmt: skip
def test_malformed_text_is_refused_with_its_place(text: str, message: str) -> None:
    with pytest.raises(InputError) as error:
        module(text)
    assert message in str(error.value)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"\x08\x12\xff", "byte 2 is not text; expected HLO text: what jax.jit"),
        (b"module @jit_f attributes {} {\n  func.func public @main()\n}", "this is StableHLO"),
        (None, "No such file"),
    ],
)
def test_other_files_are_refused_with_the_way_to_hlo(
    tmp_path: Path, data: bytes | None, message: str
) -> None:
    path = tmp_path / "m.hlo"
    if data is not None:
        path.write_bytes(data)
    with pytest.raises(InputError, match=message):
        read(path)
