"""Queen: a durable message queue, as a server and as a library for trio applications."""
