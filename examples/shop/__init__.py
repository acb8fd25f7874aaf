"""The parts of `examples/orders.py`: producers, consumers, the server that is killed, the judge of their records."""
