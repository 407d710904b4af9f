"""Traces learned from traces: a corpus, tokens, and generators that make new ones.

A rank's graph is written as tokens in issue order: a symbol (kind, operator, how it communicates), numbers,
and references to earlier tokens relative to what repeats. Tokens with the same labels are pieces, pieces of a
microbatch are blocks, and a step is blocks with counts. Repeated motifs are found by run lengths and tandem
repeats, and sequences of one kind of program share templates.

Counts are integer expressions of the condition, chosen among all that fit by how many other counts they
explain. Variants and references are chosen by trees. Sizes are sums of monomials found by non-negative least
squares of relative errors, simplest first. All classes of a trace are made together on the plan's grid.
References only point back, so there are no cycles; stages whose messages or collectives would not fit are
refused. `conditions.of_class` derives what a class of ranks has: layers of its stage, replicas of its
experts, routed tokens.
"""
