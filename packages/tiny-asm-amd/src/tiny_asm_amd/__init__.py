"""AMD's GPUs below the compiler: instructions of RDNA 3, RDNA 4 and CDNA as Python functions, as text and as bytes."""

from tiny_asm_amd.assembler import assemble, parse
from tiny_asm_amd.code_object import Kernel, Program, code_object
from tiny_asm_amd.disassembler import decode, disassemble
from tiny_asm_amd.dsl import Branch, Half, Isa, Label, code
from tiny_asm_amd.errors import AsmError
from tiny_asm_amd.instruction import Instruction
from tiny_asm_amd.registers import (
  Operand,
  Register,
  a,
  exec_,
  exec_hi,
  exec_lo,
  m0,
  null,
  s,
  scc,
  sext,
  ttmp,
  v,
  vcc,
  vcc_hi,
  vcc_lo,
)
from tiny_asm_amd.table import FAMILIES, family_of

__all__ = [
  "FAMILIES", "AsmError", "Branch", "Half", "Instruction", "Isa", "Kernel", "Label", "Operand", "Program", "Register",
  "a", "assemble", "code", "code_object", "decode", "disassemble", "exec_", "exec_hi", "exec_lo", "family_of", "m0",
  "null", "parse", "s", "scc", "sext", "ttmp", "v", "vcc", "vcc_hi", "vcc_lo",
]  # fmt: skip
