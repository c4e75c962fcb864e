"""Models of GPUs: what the source of a kernel means, run on this machine and looked at. See README.md."""
