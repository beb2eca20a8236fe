"""The version, for those who must not import anything else."""

VERSION = "0.1.0"
