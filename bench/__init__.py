"""What Queen's speed and size are measured with: `python -m bench --help`."""
