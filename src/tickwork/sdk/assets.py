"""`tw.asset`: data by its name, made by tasks, to whose updates schedules listen."""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import date
from functools import wraps
from typing import TYPE_CHECKING, Any, TypeVar, cast

from tickwork.core.base.errors import Refused
from tickwork.core.base.names import check_name
from tickwork.sdk.authoring.source_location import at_place, here
from tickwork.sdk.context import current

if TYPE_CHECKING:
    from tickwork.sdk.authoring.schedules import Trigger

Partition = str | date
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Asset:
    """Data by its name. `a & b` and `a | b` are what `tw.on` listens to."""

    name: str

    def __and__(self, other: "Asset | Trigger") -> "Trigger":
        return as_trigger(self) & as_trigger(other)

    def __or__(self, other: "Asset | Trigger") -> "Trigger":
        return as_trigger(self) | as_trigger(other)

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class Materialized:
    """The result of a task with `produces`, with what it says of the data that it made."""

    value: Any
    partition: Partition | None
    details: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Update:
    """An update that started a run, as its input `because` lists it. Kind is event, run or asset."""

    kind: str
    name: str  # of the event, the workflow that ended, or the asset
    at: str
    by: str = ""
    key: str = ""  # of the event
    id: str = ""  # of the event, or of the run that ended
    state: str = ""  # of the run that ended
    partition: str = ""  # of the asset
    source: str = ""  # the task that made the data
    payload: Any = None  # of the event; the details of new data


def materialized(
    value: T = None,  # type: ignore[assignment]
    /,
    *,
    partition: Partition | None = None,
    details: Mapping[str, Any] | None = None,
) -> T:
    """The result of a task with `produces`, that says more about the data that it made: `partition` is the part that
    is new, `details` are at most 1 KiB. Return it: `return tw.materialized(rows, partition=day)`. For others, the
    result is `value`."""
    return cast("T", Materialized(value, partition, details or {}))


def asset(name: str, /) -> Asset:
    """Names data: `orders = tw.asset("shop.orders")`. Tasks make it (`@tw.task(produces=orders)`), and workflows run
    when it is new: `tw.on(orders & rates)`."""
    at_place(check_name, name, path="asset", kind="asset", location=here())
    return Asset(name)


def as_trigger(item: Any) -> "Trigger":
    from tickwork.protocol.http_models import TriggerSource
    from tickwork.sdk.authoring.schedules import Trigger

    return Trigger(((TriggerSource(asset=item.name),),)) if isinstance(item, Asset) else item


def partition_text(partition: Partition | None) -> str:
    if partition is None:
        return ""
    if isinstance(partition, date):
        return partition.isoformat()
    if not isinstance(partition, str):
        raise Refused("bad_partition", f"a partition is a text or a date, not {type(partition).__name__}")
    return partition


def producing(function: Callable[..., Any], assets: tuple[str, ...]) -> Callable[..., Any]:
    """The function, whose result also says that these assets have new data."""
    if inspect.iscoroutinefunction(function):

        @wraps(function)
        async def waited(*args: Any, **kwargs: Any) -> Any:
            return _made(await function(*args, **kwargs), assets)

        return waited

    @wraps(function)
    def called(*args: Any, **kwargs: Any) -> Any:
        return _made(function(*args, **kwargs), assets)

    return called


def _made(result: Any, assets: tuple[str, ...]) -> Any:
    made = result if isinstance(result, Materialized) else Materialized(result, None, {})
    context = current()
    if context is not None:
        for name in assets:
            context._update_asset(name, partition_text(made.partition), dict(made.details))
    return made.value
