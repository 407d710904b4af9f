"""Steps of a machine that varies: quantiles of their time, and which cause moves which quantile.

`armillary.platform.variation` has the distributions. A sample is one machine that was drawn from them (`draw`) and the
step on it. Draws depend on the seed, the number of the sample and the cause alone, so that results are the same for any
number of workers, and leaving out one cause changes no draw of another.
"""
