"""Network model `ns3`: the packet simulator ns-3 itself, as the reference of our own models."""
