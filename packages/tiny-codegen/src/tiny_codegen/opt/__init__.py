"""Choosing Opts and applying them: heuristics, the beam search. How an Opt changes a kernel is below (`matrix/`, …)."""
