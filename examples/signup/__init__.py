"""A small program with a queue inside, and the tests that its authors wrote for it."""
