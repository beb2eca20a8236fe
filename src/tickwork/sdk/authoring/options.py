"""The options of tasks and workflows: what users write, as parts of the document."""

from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass, fields, replace
from datetime import timedelta
from typing import Any

from tickwork.core.base.errors import Refused
from tickwork.core.base.names import check_name
from tickwork.core.calendar.durations import duration_ms
from tickwork.core.definition.model import (
    Cache,
    Concurrency,
    Over,
    Resources,
    Retry,
    RetryRule,
    RunRate,
    Second,
    Sla,
    Timeout,
)
from tickwork.core.definition.run_labels import check_tags
from tickwork.sdk.authoring.placeholders import Value, refuse_future
from tickwork.sdk.authoring.required_approvals import OPTIONS as _APPROVAL
from tickwork.sdk.authoring.required_approvals import RequiredApproval, required_approval

_UNITS = {"": 1, "m": 1, "mb": 1, "mib": 1, "g": 1024, "gb": 1024, "gib": 1024, "t": 1024**2, "tb": 1024**2}
_RETRY = {"retries": "attempts", "retry_delay": "delay_ms", "retry_factor": "factor", "retry_max": "delay_ms_max"}
RETRY_OPTIONS = tuple(_RETRY)
START_OPTIONS = ("concurrency", "over", "rate", "second", "singleton")  # of a workflow
_RULES = ("fail_on", "retry_on")
_TIMEOUT = {"timeout": "running_ms", "queued_timeout": "queued_ms", "silent_timeout": "silent_ms"}
_RESOURCES = {"slots": "slots", "cpu": "cpu_milli", "memory": "memory_mb", "gpu": "gpu"}
_PLAIN = ("queue", "labels", "priority", "dependency", "version", "on_worker_loss", "produces")


@dataclass(frozen=True, slots=True)
class Options:
    """What a node says of its attempts; None where the workflow decides."""

    retry: Retry | None = None
    timeout: Timeout | None = None
    queue: str | Value | None = None
    labels: dict[str, str | Value] | None = None
    resources: Resources | None = None
    priority: int | None = None
    cache: Cache | None = None
    dependency: str | None = None
    version: str = ""
    on_worker_loss: str | None = None
    approval: RequiredApproval | None = None  # approval that is required before it runs
    produces: tuple[str, ...] = ()

    def replaced(self, other: "Options") -> "Options":
        """The same, with everything that `other` says."""
        given = {field.name: getattr(other, field.name) for field in fields(other)}
        return replace(self, **{name: value for name, value in given.items() if value is not None and _says(value)})

    def values(self) -> list[Value]:
        """The values to come that say where it goes."""
        named = [self.queue, *(self.labels or {}).values()]
        return [value for value in named if isinstance(value, Value)]


def _says(value: Any) -> bool:
    """Whether an option says something: not every one can be compared, a value to come cannot."""
    return isinstance(value, Value) or value != ""


def task_options(given: dict[str, Any], *, where: str) -> Options:
    """Raises `Refused`, which names the option."""
    known = {*_RETRY, *_RULES, *_TIMEOUT, *_RESOURCES, *_PLAIN, *_APPROVAL, "cache"}
    for name in given:
        if name not in known:
            choices = ", ".join(sorted([*known, "executor", "name"]))
            raise Refused("bad_option", f"{where}: there is no option {name!r}; known are {choices}")
    given = {name: value for name, value in given.items() if value is not None}
    for name, value in given.items():
        if name not in ("queue", "labels") or not isinstance(value, Value):
            refuse_future(f"{where}: {name}", value)
    retry: dict[str, Any] = {
        _RETRY[name]: _retry_value(name, value, where) for name, value in given.items() if name in _RETRY
    }
    if rules := _rules(given, where):
        retry["rules"] = rules
    timeout = {
        _TIMEOUT[name]: duration(value, path=f"{where}.{name}") for name, value in given.items() if name in _TIMEOUT
    }
    resources = {_RESOURCES[name]: resource(name, value, where) for name, value in given.items() if name in _RESOURCES}
    plain = {name: given[name] for name in _PLAIN if name in given}
    if plain.get("on_worker_loss", "retry") not in ("fail", "retry"):
        raise Refused("bad_option", f"{where}: on_worker_loss is 'fail' or 'retry', not {plain['on_worker_loss']!r}")
    if "produces" in plain:
        listed = plain["produces"]
        plain["produces"] = names_of(listed if isinstance(listed, list | tuple) else (listed,), where=where)
    if "labels" in plain:
        plain["labels"] = _labels(plain["labels"], where)
    asked_for = given.get("approval_timeout")
    approval_ms = None if asked_for is None else duration(asked_for, path=f"{where}.approval_timeout", minimum_ms=1)
    return Options(
        retry=Retry(**retry) if retry else None,
        timeout=Timeout(**timeout) if timeout else None,
        resources=Resources(**resources) if resources else None,
        cache=_cache(given.get("cache", False), where),
        approval=required_approval(given, where, approval_ms),
        **plain,
    )


def names_of(assets: Iterable[Any], *, where: str) -> tuple[str, ...]:
    """Of assets, or of their names."""
    names = []
    for asset in assets:
        name = asset if isinstance(asset, str) else getattr(asset, "name", None)
        if name is None:
            raise Refused("bad_option", f"{where}: produces names assets, made by tw.asset, not {asset!r}")
        names.append(check_name(name, path="produces", kind="asset"))
    return tuple(dict.fromkeys(names))


def duration(value: Any, *, path: str, minimum_ms: int = 0) -> int:
    """Milliseconds of `5m`, `PT5M`, or a timedelta. A bare number is refused because it has no unit."""
    if isinstance(value, timedelta):
        value = round(value / timedelta(milliseconds=1))
    elif isinstance(value, int | float):
        example = f"'{value}s', '{value}m'" if isinstance(value, int) else "'90s', '1500ms'"
        raise Refused("duration_type", f"{value!r} has no unit; write {example} or a timedelta", path=path)
    return duration_ms(value, path=path, minimum_ms=minimum_ms)


def label(value: Any) -> str:
    """True is written like in YAML."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def sla(value: Any, *, path: str) -> Sla | None:
    """`"2h"`, or (warning, breach)."""
    if value is None:
        return None
    if isinstance(value, tuple | list):
        warn, breach = value
        return Sla(warn_ms=duration(warn, path=path), breach_ms=duration(breach, path=path))
    return Sla(breach_ms=duration(value, path=path))


def _labels(value: Any, where: str) -> dict[str, str | Value]:
    if not isinstance(value, Mapping):
        raise Refused("bad_option", f"{where}: labels are names with values, labels={{'gpu': 'true'}}, not {value!r}")
    for key, entry in value.items():
        if not isinstance(entry, Value):
            refuse_future(f"{where}: the label {key}", entry)
    return {str(key): entry if isinstance(entry, Value) else label(entry) for key, entry in value.items()}


def _retry_value(name: str, value: Any, where: str) -> int:
    if name in ("retry_delay", "retry_max"):
        return duration(value, path=f"{where}.{name}")
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise Refused("bad_option", f"{where}: {name} is a whole number from 0, not {value!r}")
    return value + 1 if name == "retries" else value


def resource(name: str, value: Any, where: str) -> int:
    if name == "memory" and isinstance(value, str):
        digits = value.rstrip("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")
        unit = value[len(digits) :].lower()
        if digits.strip().isdigit() and unit in _UNITS:
            return int(digits) * _UNITS[unit]
    elif isinstance(value, int | float) and not isinstance(value, bool) and value >= 0:
        return round(value * 1000) if name == "cpu" else int(value)
    message = f"{where}: {name}={value!r} is not an amount; use a number, or '512MB', '2GB' for memory"
    raise Refused("bad_option", message)


def _rules(given: dict[str, Any], where: str) -> tuple[RetryRule, ...]:
    """`fail_on` and `retry_on` as rules. The first rule that fits an error counts, so special errors come before more
    general ones: what is named by a text first, then classes, the most derived first."""
    named: list[tuple[int, RetryRule]] = []
    for option in _RULES:
        errors = given.get(option, ())
        delays: Mapping[Any, Any] = errors if option == "retry_on" and isinstance(errors, Mapping) else {}
        for error in _listed(errors, option, where):
            name, depth = _error_name(error, option, where)
            delay_ms = duration(delays[error], path=f"{where}.{option}") if error in delays else None
            attempts = 1 if option == "fail_on" else None
            named.append((depth, RetryRule(error=name, attempts=attempts, delay_ms=delay_ms)))
    if named and not given.get("retries"):
        raise Refused("bad_option", f"{where}: {' and '.join(name for name in _RULES if name in given)} choose"
                      " among errors that are tried again; say how often: retries=3")  # fmt: skip
    rules = [rule for _, rule in sorted(named, key=lambda pair: -pair[0])]
    if given.get("retry_on"):
        rules.append(RetryRule(error="*", attempts=1))
    return tuple(rules)


def _listed(errors: Any, option: str, where: str) -> list[Any]:
    if isinstance(errors, str | type):
        return [errors]
    if not isinstance(errors, Iterable):
        raise Refused("bad_option", f"{where}: {option} is a tuple of exceptions or their names, not {errors!r}")
    return list(errors)


def _error_name(error: Any, option: str, where: str) -> tuple[str, int]:
    """How workers report it, and how special it is."""
    if isinstance(error, str) and error:
        return error, 1_000
    if isinstance(error, type) and issubclass(error, BaseException):
        every = error in (Exception, BaseException)
        return ("*" if every else error.__name__), len(error.__mro__)
    raise Refused("bad_option", f"{where}: {option} names exceptions, as classes or by name, not {error!r}")


def _cache(value: Any, where: str) -> Cache | None:
    if value is False:
        return None
    return Cache() if value is True else Cache(ttl_ms=duration(value, path=f"{where}.cache"))


def listed_tags(given: Any) -> tuple[str, ...]:
    """Tags as a tuple. Raises `Refused`."""
    tags = (given,) if isinstance(given, str) else tuple(given)
    for tag in tags:
        if not isinstance(tag, str):
            raise Refused("bad_tag", f"a tag is a text, not {tag!r}", path="tags")
    check_tags(tags, path="tags")
    return tags


# ---- what limits the starts of a workflow


def start_limits(options: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Of the options, those that limit starts, checked; keys are names of inputs or conditions still."""
    concurrency, singleton = options.get("concurrency"), options.get("singleton")
    second, rate, over = options.get("second"), options.get("rate"), options.get("over")
    if singleton not in (None, False) and concurrency is not None:
        raise Refused("bad_option", f"{where}: singleton is concurrency=1; give one of them")
    if second is not None and concurrency is None and singleton in (None, False):
        raise Refused("bad_option", f"{where}: second says what a run does whose singleton or concurrency is taken")
    if over is not None and rate is None:
        raise Refused("bad_option", f"{where}: over says what a run does that is beyond the rate; give a rate")
    return {
        "concurrency": _concurrency(concurrency, singleton, second, where),
        "rate": None if rate is None else _rate(rate, over, where),
    }


def _concurrency(given: Any, singleton: Any, second: Any, where: str) -> Concurrency | None:
    if singleton not in (None, False):
        if singleton is not True and not isinstance(singleton, str):
            raise Refused("bad_option", f"{where}: singleton is True or the name of an input, not {singleton!r}")
        given, second = (1, "" if singleton is True else singleton), second or Second.SKIP
    if given is None:
        return None
    limit, key = given if isinstance(given, tuple) else (given, "")
    return Concurrency(limit=limit, key=key, second=_choice(Second, second or Second.WAIT, "second", where))


def _rate(given: Any, over: Any, where: str) -> RunRate:
    if not isinstance(given, tuple) or len(given) not in (2, 3):
        raise Refused("bad_option", f'{where}: a rate is (10, "1m") or (10, "1m", "customer"), not {given!r}')
    limit, per, *key = given
    per_ms = duration(per, path=f"{where}.rate", minimum_ms=1)
    return RunRate(limit=limit, per_ms=per_ms, key="".join(key), over=_choice(Over, over or Over.WAIT, "over", where))


def _choice(kind: Any, given: Any, option: str, where: str) -> Any:
    try:
        return kind(given)
    except ValueError:
        known = ", ".join(choice.value for choice in kind)
        raise Refused("bad_option", f"{where}: {option} is one of {known}, not {given!r}") from None


def key_text(key: str, inputs: Container[str]) -> str:
    """As the document says it: the name of an input, or a condition."""
    return f'inputs["{key}"]' if key in inputs else key
