"""The conformance kit: `pytest --pyargs tiny_runtime.conformance --backend NAME`. See README.md in this folder."""

from tiny_runtime.conformance.expectations import Expectations
from tiny_runtime.conformance.target import Target, find_target

__all__ = ["Expectations", "Target", "find_target"]
