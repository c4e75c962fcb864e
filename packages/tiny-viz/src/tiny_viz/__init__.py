"""Looks at traces of the tiny-* compiler stack: `python -m tiny_viz TRACE`, and the same from Python."""

from tiny_viz.errors import TraceError
from tiny_viz.graphs import Graphs
from tiny_viz.run import Origin, Run, RunRecord, Wave
from tiny_viz.trace import NodeInfo, RuleInfo, SpanInfo, Step, Trace, read_trace

__all__ = [
  "Graphs", "NodeInfo", "Origin", "RuleInfo", "Run", "RunRecord", "SpanInfo", "Step", "Trace", "TraceError", "Wave",
  "read_trace",
]  # fmt: skip
