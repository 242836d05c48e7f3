"""What things are, decided once: GPU activities by `classify`, with the rules of kernels.toml; host names by `host`."""

from traceread.categories.category import FAMILIES, Patterns, classify, possible_communication

__all__ = ["FAMILIES", "Patterns", "classify", "possible_communication"]
