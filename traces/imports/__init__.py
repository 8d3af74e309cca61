"""Traces out of what other profilers write: Nsight Systems and Kineto."""
