"""Watching compilation: what `DEBUG=6` prints, `TRACK_MATCH_STATS` counts and `VIZ` records, and observers of one's
own."""

from typing import TYPE_CHECKING

from tiny_uop.lazy import lazy_names
from tiny_uop.observe.hub import active, observed, observing, span, tracing
from tiny_uop.observe.observer import Observer, Rewrite, Span
from tiny_uop.observe.printer import brief, brief_change

if TYPE_CHECKING:
  from tiny_uop.observe.recorder import TRACE_VERSION, Recorder, also_save, save_trace
  from tiny_uop.observe.stats import MatchCount, MatchStats, format_match_stats, print_match_stats, process_stats

__all__ = [
  "MatchCount", "MatchStats", "Observer", "Recorder", "Rewrite", "Span", "TRACE_VERSION", "active", "also_save",
  "brief", "brief_change", "format_match_stats", "observed", "observing", "print_match_stats", "process_stats",
  "save_trace", "span", "tracing",
]  # fmt: skip

# whoever does not watch needs only to know that
__getattr__ = lazy_names(
  __name__, TRACE_VERSION="recorder", Recorder="recorder", also_save="recorder", save_trace="recorder",
  MatchCount="stats", MatchStats="stats", format_match_stats="stats", print_match_stats="stats", process_stats="stats",
)  # fmt: skip
