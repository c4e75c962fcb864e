"""Which graphs are legal at which level: `check` a graph, or `check_stage` what a stage takes and gives."""

from tiny_uop.spec.stage import check_stage
from tiny_uop.spec.tables import LEVELS
from tiny_uop.spec.verify import Level, SpecError, check, check_nodes

__all__ = ["LEVELS", "Level", "SpecError", "check", "check_nodes", "check_stage"]
