"""The names of the SDK in one place, for `tickwork.__getattr__`."""

from tickwork.sdk.context import Context, StepsChanged, context
from tickwork.sdk.declared import instance
from tickwork.sdk.plain import Unsendable
from tickwork.sdk.tasks import Task, task

__all__ = ["Context", "StepsChanged", "Task", "Unsendable", "context", "instance", "task"]
