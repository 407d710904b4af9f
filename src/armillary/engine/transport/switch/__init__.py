"""What packets meet on their way, whatever the transport: output ports, marks, pauses, and the choice of links.

`port_kernel` says how a transport uses ports; `hops` and `hop_kernel` choose ways at every node.
"""
