"""The actors and the pure rules that they apply. Who may wait for whom: an asker waits for the router or a
partition, these hand records to the writer, and nobody else waits for anybody."""
