"""Sums weighted by a softmax, and their gradients: found by their structure, computed by kernels of blocks."""
