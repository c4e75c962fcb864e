"""What is released from this repository, and whether it may be: see `release.py`."""
