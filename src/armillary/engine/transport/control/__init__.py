"""Congestion controls, a kernel each, with a page of equations in `docs/reference/transports`.

`control_kernel` asks that of a connection of protocol `rdma` how fast to send. DCQCN also serves protocol `lossless`.
Of RCCC only the rate of grants is here: grants, and NDP, are in the kernels of senders, receivers and ports of `rdma`.
"""
