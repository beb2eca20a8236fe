"""The plugin as users get it, also where the package is not installed with its entry points."""

from tickwork.testing.plugin import world

__all__ = ["world"]
