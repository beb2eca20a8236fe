"""PURE: values and rules. No I/O, clock, randomness, logging or await."""
