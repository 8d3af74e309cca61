"""Measure a machine: what copies, kernels, windows and page faults take on its GPU."""
