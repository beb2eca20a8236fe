"""The version, for those who must not import anything else."""

VERSION = "0.1.0"
BUILT_MS = 1_767_225_600_000  # this program is younger than that: a clock before it is wrong
