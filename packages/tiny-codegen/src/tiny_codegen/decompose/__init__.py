"""What a target lacks, made of what it has: tables of rewrite rules chosen by a target's target."""

from tiny_codegen.decompose.late import late_table_for
from tiny_codegen.decompose.tables import table_for

__all__ = ["late_table_for", "table_for"]
