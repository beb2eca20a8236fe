"""A task that a person approves before it runs, wherever it is called.

tickwork dev examples/payment.py
tickwork run examples/payment.py:settle --detach --input amount=30
tickwork inbox                                     # Pay 30 to DE-ADA?
tickwork approve ID approve_pay                    # or use the button on the page
"""

import tickwork as tw


@tw.task
def account_of(name: str) -> str:
    return f"DE-{name.upper()}"


@tw.task(requires_approval="Pay {amount} to {account}?", approval_timeout="1d")
def pay(amount: int, account: str) -> str:
    return f"{amount} paid to {account}"


@tw.workflow
def settle(amount: int = 10, name: str = "Ada") -> str:
    return pay(amount, account_of(name))
