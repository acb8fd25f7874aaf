"""What is kept: the journal and its tables behind one port (`journal.py`), and the bytes on the disk."""
