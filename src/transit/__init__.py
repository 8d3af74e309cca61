"""transit: train models that do not fit the GPU, with the host's DRAM behind it."""

from transit._version import __version__

__all__ = ["__version__"]
