"""An order waits for its payment: an event from outside, identified by its key, with a time limit.

    tickwork dev examples/order.py
    tickwork run examples/order.py:order --input number=A-17 --input total=250 --detach
    tickwork signal paid --key A-17 --payload '{"amount": 250}'

Large orders are reviewed first. An order that is not paid in time is cancelled.
"""

from typing import Any

import tickwork as tw


@tw.task
def review(number: str) -> str:
    return f"{number} was reviewed by a person"


@tw.task
def accept(number: str) -> str:
    return f"{number} accepted"


@tw.task
def ship(number: str, payment: dict[str, Any] | None, checked: str) -> str:
    if payment is None:
        return f"{number} cancelled: not paid in time"
    return f"{number} shipped for {payment['amount']} ({checked})"


@tw.workflow
def order(number: str = "A-17", total: int = 250) -> str:
    checked = tw.branch(total > 100, lambda: review(number), lambda: accept(number))
    payment = tw.event("paid", key=number, timeout="5m", on_timeout="continue")
    return ship(number, payment, checked)
