"""What a target lacks, made of what it has: tables of rewrite rules chosen by a `Target`."""

from tiny_codegen.decompose.late import fuse, late_table_for
from tiny_codegen.decompose.tables import decompose, table_for

__all__ = ["decompose", "fuse", "late_table_for", "table_for"]
