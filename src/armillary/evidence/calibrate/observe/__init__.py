"""A machine from what was observed of it: logs of collectives, profiles, GEMMs and steps to one machine file.

Files are read by what they hold (`read`). The machine is taken to be like a preset (`base`), or like nothing; then
kernels (`kernels`), collectives (`network`) and steps (`software`) move it. What was not observed stays as it was, and
the machine file says so (`machine`).
"""
