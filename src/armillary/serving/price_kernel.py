"""How long a step takes, from the tables of `armillary.serving.step_table`."""

from __future__ import annotations

from armillary.base.jit import inner

Q_CHUNK, Q_BEFORE, Q_DECODING, Q_CONTEXT, Q_COLUMNS = range(5)
"""Axes of attention: new tokens of prompts, tokens before them, sequences that decode, tokens before each of these."""


@inner
def place(axis, first, end, value):
    """Return the begin of the interval of an ascending axis, from `first` to `end`, that a value lies in."""
    low, high = first, end - 2
    while low < high:
        middle = (low + high + 1) // 2
        if axis[middle] <= value:
            low = middle
        else:
            high = middle - 1
    return low


@inner
def between(low, high, at, begin, end):
    """Return the value at `at` on the line through two points; beyond the last, the line goes on."""
    if end == begin:
        return low
    return low + (high - low) * (at - begin) // (end - begin)


@inner
def attention(axes, ends, values, chunk, before, decoding, context):
    """Return ps of the attention of one layer: linear along each axis between the points of the table.

    Args:
        axes: The points of the four axes, one after another.
        ends: (5) Where each begins.
        values: ps, a row of `context` for each combination of the others.
        chunk: New tokens of prompts.
        before: Tokens before them; may be negative, as several short prompts have fewer scores than one long one.
        decoding: Sequences that decode.
        context: Tokens before each of these, on average.
    """
    sizes = (ends[1] - ends[0], ends[2] - ends[1], ends[3] - ends[2], ends[4] - ends[3])
    a = place(axes, ends[0], ends[1], chunk) if sizes[0] > 1 else ends[0]
    b = place(axes, ends[1], ends[2], before) if sizes[1] > 1 else ends[1]
    c = place(axes, ends[2], ends[3], decoding) if sizes[2] > 1 else ends[2]
    d = place(axes, ends[3], ends[4], context) if sizes[3] > 1 else ends[3]
    total_a = 0
    low_a = 0
    for i in range(min(2, sizes[0])):
        low_b = 0
        for j in range(min(2, sizes[1])):
            low_c = 0
            for k in range(min(2, sizes[2])):
                row = (
                    (((a - ends[0] + i) * sizes[1] + b - ends[1] + j) * sizes[2] + c - ends[2] + k) * sizes[3]
                    + d
                    - ends[3]
                )
                at_d = values[row]
                if sizes[3] > 1:
                    at_d = between(values[row], values[row + 1], context, axes[d], axes[d + 1])
                at_c = at_d if k == 0 else between(low_c, at_d, decoding, axes[c], axes[c + 1])
                low_c = at_c
            at_b = low_c if j == 0 else between(low_b, low_c, before, axes[b], axes[b + 1])
            low_b = at_b
        total_a = low_b if i == 0 else between(low_a, low_b, chunk, axes[a], axes[a + 1])
        low_a = total_a
    return max(0, total_a)


@inner
def step_ns(price, tokens, outputs, chunk, before, decoding, context, each):
    """Return ns of a step of a rank.

    Args:
        price: ns of what depends on the tokens alone, and on the sequences that get a token; axes, their ends, and ps
            of attention; ns that the CPU takes to issue the kernels of a step, the tokens up to which steps with
            and without prompts are graphs, which it issues at once, whether prompts count by their own lengths, drafts
            before a step, and layers; ns of what ranks do together, by tokens of each.
        tokens: All tokens.
        outputs: Sequences that get a token.
        chunk: New tokens of prompts.
        before: Tokens before them, on average over scores.
        decoding: Sequences that decode.
        context: Tokens before these, on average.
        each: Tokens of a rank, on average over those that go through the step together.
    """
    dense, head, axes, ends, values, issued, together = price
    if issued[3] > 0 and chunk > 0 and before < 0:
        # As many prompts of equal length as have so many scores; their kernels are launched once.
        length = max(1, chunk + 2 * before)
        once = attention(axes, ends, values, 1, 0, 0, 0)
        each_of = attention(axes, ends, values, length, 0, 0, 0) - once
        ps = once + max(0, each_of) * chunk // length + attention(axes, ends, values, 0, 0, decoding, context)
    else:
        ps = attention(axes, ends, values, chunk, before, decoding, context)
    ns = dense[tokens] + head[outputs] + ps // 1000 + together[min(each, len(together) - 1)]
    if issued[4] > 0 and decoding > 0:
        # A draft takes a layer, and the choice of a token.
        layers = dense[decoding] + attention(axes, ends, values, 0, 0, decoding, context) // 1000
        layers += together[min(each // (1 + issued[4]), len(together) - 1)]
        ns += issued[4] * (layers // issued[5] + head[decoding])
    return max(ns, issued[0]) if tokens > issued[1 if chunk > 0 else 2] else ns
