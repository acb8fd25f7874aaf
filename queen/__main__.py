"""`python -m queen`."""

from queen.cli import main

main()
