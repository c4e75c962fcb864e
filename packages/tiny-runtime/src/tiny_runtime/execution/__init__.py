"""Execution: a schedule's calls become launches, copies and captured graphs."""
