"""The end of a step on many machines that differ in speeds, from one run of it.

Ranks that draw different speeds are different classes, and a machine of 65,536 NPUs that each draw their own has
65,536. Simulating them takes minutes. What a run decides, however, is mostly the same for all of them: which node
follows which, who meets in which collective, and how long that moves data once all have come. So these decisions are
taken from one run of the folded program, and only times are computed anew, for every rank of every drawn machine. With
decisions fixed the end of a node is a maximum of sums (Baccelli, Cohen, Olsder and Quadrat, Synchronization and
Linearity, 1992).

What is not computed anew is how transfers share ports: a transfer that overlaps another takes the time that it had
beside the other in the run. `armillary.explore.samples` measures the error that this makes, on every machine anew.

Cost grows with distinct work. Members of a group that have just met have one time, not one each (`times`), so that a
kernel which tensor-parallel ranks run after an all-reduce costs one addition for each group.
"""
