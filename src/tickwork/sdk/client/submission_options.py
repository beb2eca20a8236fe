"""What one submission says instead of its workflow."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from tickwork.core.base.errors import Refused
from tickwork.sdk.authoring.options import RETRY_OPTIONS, duration, task_options

if TYPE_CHECKING:
    from tickwork.sdk.authoring.workflows import Workflow

Errors = type[BaseException] | str | Sequence[type[BaseException] | str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """Options of one run: `client.submit(report, day="monday", options=tw.Options(timeout="1h", retries=3))`.

    timeout   of the whole run, instead of that of its workflow
    queue     for tasks that name no queue; a worker has to serve it
    retries   for tasks that have no retries of their own, with `retry_delay`, `retry_factor`, `retry_max`, `retry_on`
              and `fail_on` as for tasks

    Child runs follow their own workflows.
    """

    timeout: str | timedelta | None = None
    queue: str = ""
    retries: int | None = None
    retry_delay: str | timedelta | None = None
    retry_factor: int | None = None
    retry_max: str | timedelta | None = None
    retry_on: Errors | Mapping[type[BaseException] | str, str | timedelta] | None = None
    fail_on: Errors | None = None

    def terms(self) -> dict[str, Any]:
        """Fields of a submission. Raises `Refused`."""
        given = {name: getattr(self, name) for name in (*RETRY_OPTIONS, "retry_on", "fail_on")}
        given = {name: value for name, value in given.items() if value is not None}
        return {
            "timeout_ms": None if self.timeout is None else duration(self.timeout, path="timeout", minimum_ms=1),
            "queue": self.queue,
            "retry": task_options(given, where="options").retry,
        }


def refuse_ambiguous(
    workflow: "Workflow[..., Any] | str", inputs: Mapping[str, Any], options: Mapping[str, Any]
) -> None:
    """An option of `submit` that is also an input of the workflow. The mapping of inputs tells the two apart."""
    known = {} if isinstance(workflow, str) else workflow.codec.parameters
    for name, value in options.items():
        if value and name in known and name not in inputs:
            message = f"{name} is an input of the workflow and an option of submit; give the inputs as one mapping"
            raise Refused("ambiguous_option", f'{message}: submit(..., {{"{name}": ...}})')
