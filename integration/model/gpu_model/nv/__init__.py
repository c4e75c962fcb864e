"""A model of NVIDIA's kernel driver and of the queues of its GPUs."""
