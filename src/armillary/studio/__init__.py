"""A local web application: change a number of a model, a machine or a plan, and see the step change.

A browser asks the server (`app`), which only listens, checks who asks (`guard`) and passes on; a process of its own
(`desk`) simulates, so that a long answer can be ended and a question that fails costs nothing else. What is asked
(`question`) and how it is answered (`answers`) are those of `armillary.train` and `armillary.plan`. The scripts of the
page are built from ``web/``.
"""
