"""Traces learned from traces: a corpus, tokens, and generators of new traces.

A rank's graph is written as tokens in issue order: a symbol (kind, operator, how it communicates), numbers,
and references to earlier tokens relative to what repeats. Tokens with the same labels are pieces, pieces of a
microbatch are blocks, and a step is blocks with counts. Run lengths and tandem repeats give the repeated motifs,
and sequences of one kind of program share templates.

Counts are integer expressions of the condition; of all that fit, the one that explains most other counts is
chosen. Trees choose variants and references. Sizes are sums of monomials, fitted by non-negative least squares of
relative errors, simplest first. All classes of a trace are made together on the plan's grid. References only point
back, so there are no cycles; stages whose messages or collectives would not fit are refused.
`conditions.of_class` derives the numbers of a class of ranks: layers of its stage, replicas of its experts, routed
tokens.
"""
