"""Plugins: which are installed, whether each works here, and how to begin one."""
