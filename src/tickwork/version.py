"""The version of tickwork, and nothing else: pyproject.toml reads it from here. This module imports nothing."""

VERSION = "0.1.0"
BUILT_MS = 1_767_225_600_000  # this program is younger than that: a clock before it is wrong
