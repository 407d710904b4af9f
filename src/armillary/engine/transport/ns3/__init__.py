"""Network model `ns3`: the packet simulator ns-3 itself, as the reference of our own models.

What moves: datagrams of paced UDP, or segments of ns-3's TCP. What is ignored: RDMA and pauses, which its wheel does
not have. What it costs: one or more events of ns-3 per packet and link, and seconds to compile its C++ part in each
process.
"""
