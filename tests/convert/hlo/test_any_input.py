"""Whatever the text, it converts to graphs without a fault or is refused by an InputError."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from armillary.base.errors import InputError
from armillary.convert import Converted
from armillary.trace import check

GOLDEN = (Path(__file__).parent / "mlp_dp4_tp2.hlo").read_text()
LOOP = """HloModule loop, replica_count=2

sum {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT s = f32[] add(a, b)
}

body {
  s = (s32[], f32[8]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  v = f32[8] get-tuple-element(s), index=1
  one = s32[] constant(1)
  j = s32[] add(i, one)
  w = f32[8] all-reduce(v), replica_groups={{0,1}}, to_apply=sum
  p = f32[8] collective-permute(w), source_target_pairs={{0,1},{1,0}}
  ROOT r = (s32[], f32[8]) tuple(j, p)
}

more {
  t = (s32[], f32[8]) parameter(0)
  k = s32[] get-tuple-element(t), index=0
  limit = s32[] constant(5)
  ROOT less = pred[] compare(k, limit), direction=LT
}

ENTRY main {
  x = f32[8] parameter(0)
  zero = s32[] constant(0)
  init = (s32[], f32[8]) tuple(zero, x)
  while = (s32[], f32[8]) while(init), condition=more, body=body
  y = f32[8] get-tuple-element(while), index=1
  c = f32[8] conditional(zero, y, y), branch_computations={half, half}
  start = (f32[8], f32[16]) all-gather-start(c), dimensions={0}
  ROOT done = f32[16] all-gather-done(start)
}
"""
LOOP = LOOP.replace("ENTRY", "half {\n  h = f32[8] parameter(0)\n  ROOT n = f32[8] negate(h)\n}\n\nENTRY")

PIECES = (
    "{", "}", "(", ")", "[", "]", ",", "=", "%", '"', "\n", "\0", "é", "0", "-1", "7", "4096",
    "999999999", "999999999999999999", "999999999999999999999999999999", "ROOT ", "ENTRY ", "f32[",
    "(f32[])", "tuple(", "while(", "call(", "conditional(", "convolution(", "reduce-window(",
    "all-to-all(", "async-start(", "all-reduce-done(", "send(", "custom-call(", "index=", "calls=",
    "to_apply=", "channel_id=1", "replica_groups=[1,2]<=[2]", "replica_groups=mesh['x'=2] {'x'}", "<=",
    "window={size=3x3}", "dim_labels=b01f_01io->b01f",
)  # fmt: skip


@st.composite
def mangled(draw: st.DrawFn) -> str:
    text = draw(st.sampled_from([GOLDEN, LOOP]))
    for _ in range(draw(st.integers(1, 4))):
        kind, at = draw(st.integers(0, 5)), draw(st.integers(0, len(text)))
        if kind == 0:
            text = text[:at]
        elif kind == 1:
            text = text[:at] + text[at + draw(st.integers(1, 20)) :]
        elif kind == 2:
            text = text[:at] + draw(st.sampled_from(PIECES)) + text[at + draw(st.integers(0, 8)) :]
        elif kind == 3:
            rows = text.split("\n")
            i, j = (draw(st.integers(0, len(rows) - 1)) for _ in range(2))
            rows[i], rows[j] = rows[j], rows[i]
            text = "\n".join(rows)
        else:
            words = list(re.finditer(r"\d+" if kind == 4 else r"[a-z][\w.\-]+", text))
            if words:
                one, other = draw(st.sampled_from(words)), draw(st.sampled_from(words))
                text = text[: one.start()] + other[0] + text[one.end() :]
    return text


@settings(max_examples=300, deadline=None)
@given(text=mangled(), in_order=st.booleans(), unroll=st.sampled_from([0, 20, 200_000]))
def test_mangled_modules(convert: Callable[..., Converted], text: str, in_order: bool, unroll: int) -> None:
    try:
        found = convert(text, in_order=in_order, unroll=unroll)
    except InputError:
        return
    faults = [fault for graph in found.trace.graphs for fault in check(graph)]
    assert [fault for fault in faults if fault.severity == "error"] == []


@settings(max_examples=100, deadline=None)
@given(text=st.text())
def test_any_text(convert: Callable[..., Converted], text: str) -> None:
    with pytest.raises(InputError):
        convert(text)
