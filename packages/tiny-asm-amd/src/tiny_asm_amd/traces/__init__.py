"""Thread traces (SQTT) and performance counters that AMD's GPUs record: bytes ⇄ packets, waves and their instructions.

It needs NumPy: `pip install 'tiny-asm-amd[traces]'`.
"""
