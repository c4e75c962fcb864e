"""Looks at traces of the tiny-* compiler stack: `python -m tiny_viz TRACE`, and the same from Python."""

from tiny_viz.graphs import Graphs
from tiny_viz.trace import NodeInfo, RuleInfo, SpanInfo, Step, Trace, TraceError, read_trace

__all__ = ["Graphs", "NodeInfo", "RuleInfo", "SpanInfo", "Step", "Trace", "TraceError", "read_trace"]
