"""The journal: a port, its engines, the bytes, and the projections that are made from the records."""
