"""A neural generator: a transformer over programs and pieces, with grammar masks and learned choices.

It makes the same choices as the library of `armillary.lab.learned` with a transformer: programs and pieces
are token sequences, counts and numbers are choices among the library's expressions and formulas, with a loss
over all that are right. Training is PyTorch (`network_torch`), use is NumPy (`network`). Grammar masks,
Viterbi over stages and a run of the messages keep what is made valid.
"""
