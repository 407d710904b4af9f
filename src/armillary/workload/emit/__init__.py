"""From sharded layers and the order of tasks to the graphs of a trace."""
