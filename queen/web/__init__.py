"""The HTTP edge: requests to the broker's public methods and replies back. Knows nothing of store or actors."""
