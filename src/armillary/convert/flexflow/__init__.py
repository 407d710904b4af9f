"""FlexFlow task graphs: the Graphviz files its simulator writes, and how they become one graph per device."""
