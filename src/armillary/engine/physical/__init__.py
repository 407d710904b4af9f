"""Profile `physical`: shared ports, every dimension crossed is paid for, collectives overlap."""
