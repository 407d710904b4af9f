"""Move real numbers along an MSCCL algorithm: does it do the collective it claims to be?"""

from __future__ import annotations

import random

from armillary.base.errors import InputError, one_of
from armillary.collective.msccl_algo import Action, Algo, Span

CHECKED = ("all-reduce", "all-gather", "reduce-scatter", "all-to-all")
"""Operations that `check_result` knows."""

State = dict[tuple[int, str, int], int]


def check_result(algo: Algo) -> None:
    """Run `algo` on random numbers and compare every output chunk with the definition of the collective.

    Raises:
        InputError: a chunk is read before anything is in it, or ends wrong; or the operation is none of `CHECKED`.
    """
    if algo.operation not in CHECKED:
        raise InputError(f"{algo.file}: cannot check a {algo.operation}: expected {one_of(CHECKED)}")
    n, whole = algo.n, algo.chunks
    if algo.operation != "all-reduce" and whole % n:
        raise InputError(f"{algo.file}: {whole} chunks do not divide among {n} gpus")
    share = whole // n
    # A fixed seed, and 50 bits: a wrong sum is right by chance with a probability of about 2^-50.
    draw = random.Random(1).getrandbits
    size = share if algo.operation == "all-gather" else whole
    given = [[draw(50) for _ in range(size)] for _ in range(n)]
    state: State = {}
    for gpu, chunks in enumerate(given):
        state.update({_cell(algo, gpu, "i", k): value for k, value in enumerate(chunks)})
    _run(algo, state)
    for gpu in range(n):
        if algo.operation == "all-reduce":
            expected = [sum(column) for column in zip(*given, strict=True)]
        elif algo.operation == "all-gather":
            expected = [value for chunks in given for value in chunks]
        else:
            mine = [chunks[gpu * share : gpu * share + share] for chunks in given]
            total = [sum(column) for column in zip(*mine, strict=True)]
            expected = total if algo.operation == "reduce-scatter" else [v for part in mine for v in part]
        for k, value in enumerate(expected):
            if state.get(_cell(algo, gpu, "o", k)) != value:
                raise InputError(
                    f"{algo.file}: is no {algo.operation}: chunk {k} of the output of gpu {gpu} ends wrong"
                )


def _cell(algo: Algo, gpu: int, buffer: str, offset: int) -> tuple[int, str, int]:
    """Return where a chunk really is: in place, input and output share memory."""
    if algo.in_place and buffer in "io":
        share = algo.chunks // algo.n
        # In place the own part stands at its place within the whole buffer.
        if (algo.operation, buffer) in (("all-gather", "i"), ("reduce-scatter", "o")):
            offset += gpu * share
        buffer = "o"
    return gpu, buffer, offset


def _run(algo: Algo, state: State) -> None:
    carried: dict[int, list[int]] = {}  # by action: what a message or a step holds
    for index in algo.order():
        action = algo.actions[index]
        # An action that begins a step reads its buffers; a later one of the step takes what the one before
        # holds.
        first = index == 0 or _step(algo.actions[index - 1]) != _step(action)
        if action.kind == "recv":
            values = carried.pop(action.partner)
            if action.type in ("r", "rcs"):
                _write(algo, action, state, values)
        elif action.kind == "send":
            values = _read(algo, action, state, action.source) if first else carried.pop(index - 1)
        elif action.kind == "wait":
            continue
        else:
            values = _read(algo, action, state, action.source)
            if action.kind == "reduce":
                other = _read(algo, action, state, action.target) if first else carried.pop(index - 1)
                values = [a + b for a, b in zip(values, other, strict=True)]
            if action.type != "rrs":
                _write(algo, action, state, values)
        carried[index] = values


def _step(action: Action) -> tuple[int, int, int]:
    return action.gpu, action.block, action.step


def _read(algo: Algo, action: Action, state: State, span: Span) -> list[int]:
    found = []
    for k in range(action.count):
        cell = _cell(algo, action.gpu, span[0], span[1] + k)
        if cell not in state:
            raise InputError(
                f"{algo.file}, line {action.line}: gpu {action.gpu} reads chunk {span[1] + k} of buffer {span[0]}, "
                "which nothing has filled"
            )
        found.append(state[cell])
    return found


def _write(algo: Algo, action: Action, state: State, values: list[int]) -> None:
    for k, value in enumerate(values):
        state[_cell(algo, action.gpu, action.target[0], action.target[1] + k)] = value
