"""What ASTRA-sim makes of algorithms: messages and chunk steps, over the definitions of `armillary.collective`.

Who sends what to whom is that of the definition for ring (of whose two directions a chunk takes one, whole), direct and
halvingDoubling (the order of the distances). Two are other algorithms than those that have the name elsewhere: the
ring of an all-to-all, which sends every block all the way round one after the other, and doubleBinaryTree, which takes
one tree for each chunk, is not pipelined and always all-reduces. An all-gather by doubling also runs for numbers of
members that are no power of two, though it is wrong there.

Sizes truncate as ASTRA-sim's do. A message is ``D // n`` bytes of a phase of D bytes for ring and
direct, except all-gather, whose D is already one member's contribution.

A reduction is not charged on the message that needs it but by a counter: chunk steps come in
alternating batches, one batch that costs nothing and one that reduces (of every second pair only, in
an all-reduce). For ring, and direct without window, that charges exactly the reducing half.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from armillary.base.errors import InputError, nearest, one_of
from armillary.collective import hypercube
from armillary.collective.algorithms import rounds_for
from armillary.collective.rounds import IntArray
from armillary.engine.astra_sim.collective.schedule import Charge, Role, Schedule, Transfer
from armillary.platform.collectives import BUILT_IN, COLLECTIVES, known_name

ALGORITHMS = tuple(each.name for each in BUILT_IN if each.astra_sim)
OPERATIONS = COLLECTIVES


@lru_cache(maxsize=64)
def schedule_for(
    algorithm: str,
    operation: str,
    n: int,
    *,
    window: int | None = None,
    index: int = 0,
    local: bool = False,
    reverse: bool = False,
) -> Schedule:
    """Return the schedule of one phase among `n` members.

    Args:
        algorithm: One of `ALGORITHMS`.
        operation: One of `OPERATIONS`.
        n: Number of members, at least 2; a power of two for the last two algorithms.
        window: Messages in flight of "direct" (None: n-1); other algorithms ignore it.
        index: Which chunk of the collective this is; double binary trees alternate, see `tree.parents`.
        local: The members are a sub-group of the machine: "direct" then charges every reduction of
            an all-reduce twice.
        reverse: Go round anticlockwise (ring and direct).

    Returns:
        The schedule; the same object for the same arguments.

    Raises:
        InputError: unknown name, or an `n` or operation that the algorithm does not allow.
    """
    algorithm = known_name(algorithm, ALGORITHMS)
    for word, choices, what in ((algorithm, ALGORITHMS, "algorithm"), (operation, OPERATIONS, "operation")):
        if word not in choices:
            raise InputError(
                f"unknown collective {what} '{word}': expected {one_of(choices)}{nearest(word, choices)}"
            )
    if n < 2:
        raise InputError(f"{algorithm} {operation} over {n} member(s): a collective needs at least 2")
    if window is not None and window < 1:
        raise InputError(f"{algorithm} window {window}: expected at least 1, or none for no limit")
    # An all-gather over 6 members runs as in ASTRA-sim, though it is wrong: partners pair up at every
    # distance.
    pairs = algorithm == "halvingDoubling" and operation == "all-gather" and _pairs_up(n)
    if algorithm in ("halvingDoubling", "doubleBinaryTree") and n & (n - 1) and not pairs:
        raise InputError(
            f"{algorithm} over {n} members: expected a power of two (ring and direct take any number)"
        )
    if algorithm == "ring":
        return _ring(operation, n, reverse)
    if algorithm == "direct":
        # More messages at once than peers cannot be in flight.
        return _direct(operation, n, n - 1 if window is None else min(window, n - 1), local, reverse)
    if algorithm == "halvingDoubling":
        return _halving_doubling(operation, n)
    return _double_binary_tree(operation, n, index)


def _ring(operation: str, n: int, reverse: bool) -> Schedule:
    """One direction of the ring, in which a message is whole where the definition sends half of it each way."""
    if operation == "all-to-all":
        # A block of distance d takes d hops: 1 + 2 + ... + (n - 1) steps of D // n bytes.
        steps = np.full(n * (n - 1) // 2, n, np.int64)
    else:
        # The first message of a round goes to the next member.
        rounds = rounds_for("ring", operation, n).rounds
        # The definition sends half of each block either way; a chunk takes one direction with whole blocks.
        steps = np.concatenate([np.full(part.repeat, part.base.denominator[0] // 2) for part in rounds])
    role = _pipeline(operation, 1, np.ones_like(steps), np.zeros_like(steps), steps, (1, n - 1), reverse)
    return Schedule("ring", operation, n, "rotate", (role,), reverse)


def _direct(operation: str, n: int, window: int, local: bool, reverse: bool) -> Schedule:
    """The rounds of the definition, `window` messages at once; a round begins when the one before is received.

    With a window below n-1 reductions are charged in alternating batches of `window`, which
    charges about half of those that happen: a property of the model that is kept.
    """
    rounds = rounds_for("direct", operation, n).rounds
    peers, divide = (
        np.concatenate([getattr(part.base, column) for part in rounds])
        for column in ("target", "denominator")
    )
    # Round j starts when the j * (n - 1) messages of the rounds before were received.
    gate = np.repeat(np.arange(len(rounds)) * (n - 1), n - 1)
    batches = (window, (n - 1) * window if local else window)
    role = _pipeline(operation, window, peers, gate, divide, batches, reverse)
    return Schedule("direct", operation, n, "rotate", (role,), reverse)


def _pipeline(
    operation: str,
    initial: int,
    peers: IntArray,
    gate: IntArray,
    divide: IntArray,
    batches: tuple[int, int],
    reverse: bool,
) -> Role:
    """Send k, D // ``divide[k]`` bytes, to ``peers[k]`` and receive from its mirror image.

    Each comes after k+1 chunk steps and `gate` receives.
    """
    steps = len(peers)
    # Message k goes out when chunk step k has completed: one chunk step precedes each message.
    done = np.arange(1, steps + 1, dtype=np.int64)
    to = -peers if reverse else peers
    moves = (divide, np.ones(steps, np.int64), done, gate)
    # `initial` chunk steps start the pipeline; each received message inserts another.
    chunk_steps = initial + steps
    costs = (np.full(chunk_steps, divide[0], np.int64), np.ones(chunk_steps, np.int64))
    reductions, loads = _reductions(operation, chunk_steps, *batches)
    return Role(initial, to, *moves, -to, *moves, reductions, *costs, loads)


def _reductions(operation: str, chunk_steps: int, free: int, charged: int) -> tuple[IntArray, IntArray]:
    """Return per chunk step whether it reduces, and how it loads: after `free` that do neither, `charged` that load."""
    number = np.arange(chunk_steps)
    # Negative in the free part of a batch, from 0 in the charged part.
    place = number % (free + charged) - free
    # All but the last of a batch of received data go back to memory afterwards.
    loads = np.where(place < 0, 0, np.where(place < charged - free, 2, 1))
    reducing = (place >= 0) & (operation in ("all-reduce", "reduce-scatter"))
    if operation == "all-reduce":
        # Of two batches that load, only the first of an all-reduce reduces: the second half gathers.
        reducing &= number // (free + charged) % 2 == 0
    return reducing.astype(np.int64), loads.astype(np.int64)


def _pairs_up(n: int) -> bool:
    """Tell whether the distances n/2, n/4 … of a doubling, rounded down, pair all members up."""
    distances = [n >> (k + 1) for k in range(n.bit_length() - 1)]
    return all(n % (2 * distance) == 0 for distance in distances)


def _halving_doubling(operation: str, n: int) -> Schedule:
    """Exchange with i^1, i^2, i^4 … (halving) and back (doubling), one message at a time.

    An all-gather also runs for other n whose members pair up at every distance (6, 12, 20 …), as it
    does in ASTRA-sim, but then some members miss some blocks: it has no right data flow.

    Chunk step j is sized as message j, the one it precedes, so a reduction is charged at the size of
    the next message. The last chunk step has none to follow it; it never reduces, since the
    log2(n)-th reduction falls on a free batch. That is why only log2(n)-1 are charged.
    """
    if operation == "all-to-all":
        raise InputError("halvingDoubling all-to-all: this algorithm has none (ring and direct do)")
    rounds = n.bit_length() - 1
    # Exchange partners at distance d keep the half that d decides: 1 / (2 d) of the data.
    down = [(distance, 2 * distance, 1) for distance in hypercube.distances(n)]
    if operation == "all-gather":
        steps = [(n >> (k + 1), 1, 1 << k) for k in range(rounds)]
    elif operation == "reduce-scatter":
        steps = down
    else:
        # Sizes are halved once too often, then doubled: D // 2n * 2, not D // n, starts the way back.
        steps = down + [(distance, 2 * n, n // distance) for distance in reversed(hypercube.distances(n))]
    reductions, loads = _reductions(operation, len(steps) + 1, 1, rounds - 1)
    sends = [Transfer(peer, divide, multiply, k + 1) for k, (peer, divide, multiply) in enumerate(steps)]
    # The chunk step after the last message is sized as ASTRA-sim computes it, though it never reduces.
    after = {"all-gather": (0, 1, n), "reduce-scatter": (0, 2 * n, 1)}.get(operation, (0, 1, 1))
    sized = [*steps, after]
    charges = [
        Charge(bool(r), d, m, int(load)) for r, load, (_, d, m) in zip(reductions, loads, sized, strict=True)
    ]
    return Schedule("halvingDoubling", operation, n, "pair", (Role.of(1, sends, sends, charges),))


def _double_binary_tree(operation: str, n: int, index: int) -> Schedule:
    """Reduce all D bytes up a tree and broadcast them down: an all-reduce, whatever the operation."""
    above = parents(n, index)
    below: list[list[int]] = [[] for _ in range(n)]
    for child, parent in enumerate(above):
        if parent is not None:
            below[parent].append(child)
    roles = tuple(_tree_role(parent, children) for parent, children in zip(above, below, strict=True))
    return Schedule("doubleBinaryTree", operation, n, "absolute", roles)


def _tree_role(parent: int | None, children: list[int]) -> Role:
    if parent is None:
        # The root waits for its only child, then sends the sum down.
        return Role.of(
            0, [Transfer(children[0], after_done=1)], [Transfer(children[0])], [Charge(reduce=True, loads=1)]
        )
    # An inner node sends up once both children have been added; a leaf after its initial chunk step.
    up = Transfer(parent, after_done=max(1, len(children)))
    if not children:
        return Role.of(1, [up], [up], [Charge(), Charge(loads=1)])
    # Chunk steps 1 and 2 are the two children, 3 is the parent: then the sum goes down.
    down = [Transfer(child, after_done=3) for child in children]
    # The chunk step of the way down is charged as a reduction too: a property of the model that is kept.
    return Role.of(
        0, [up, *down], [*(Transfer(child) for child in children), up], [Charge(reduce=True, loads=1)] * 3
    )


@lru_cache(maxsize=64)
def parents(n: int, index: int) -> tuple[int | None, ...]:
    """Return each member's parent (None for the root) in the tree of chunk `index`; n is a power of two.

    The root has one child, the top of a complete binary tree over the others with in-order
    numbers. Even chunks have the last member as root ("RootMax" of ASTRA-sim), odd chunks the
    first ("RootMin"), so that the leaves of one tree are mostly inner members of the other.
    """
    root, first = (n - 1, 0) if index % 2 == 0 else (0, 1)
    above: list[int | None] = [root] * n
    above[root] = None
    for number in range(1, n):  # in-order numbers 1 … n-1: the lowest set bit is the height
        height = number & -number
        parent = (number - height) | (height << 1)
        # The parent of the top would be n: the top hangs below the root.
        if parent < n:
            above[number - 1 + first] = parent - 1 + first
    return tuple(above)
