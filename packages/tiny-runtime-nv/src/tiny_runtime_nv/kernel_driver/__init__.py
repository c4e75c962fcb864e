"""NVIDIA's GPUs through the kernel driver alone: the device `NV`. See README.md of the package."""
