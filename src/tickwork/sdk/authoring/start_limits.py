"""What limits the starts of a workflow: `concurrency`, `singleton` and `rate`, as its decorator takes them."""

from collections.abc import Container, Mapping
from typing import Any

from tickwork.core.base.errors import Refused
from tickwork.core.definition.model import Concurrency, Over, RunRate, Second
from tickwork.sdk.authoring.options import duration

START_OPTIONS = ("concurrency", "over", "rate", "second", "singleton")


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
