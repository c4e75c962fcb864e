"""An emulator of the machine code of AMD's GPUs."""
