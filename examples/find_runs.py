"""Runs that are found again: by tags, and by an input that their workflow declares searchable.

tickwork run examples/find_runs.py:refund --input customer='"ed"' --input amount=5 --tag complaint
tickwork runs --where customer=ed --tag complaint --since 24h
tickwork runs --state failed --error "amount limit"
tickwork bulk retry --workflow refund --error "amount limit"         # shows what would be retried
tickwork bulk retry --workflow refund --error "amount limit" --yes
"""

import tickwork as tw


@tw.task
def pay_back(customer: str, amount: int) -> str:
    if amount > 100:
        raise ValueError(f"the amount {amount} is over the limit")
    return f"paid {amount} back to {customer}"


@tw.workflow(tags=["money"], search=["customer", "amount"])
def refund(customer: str = "ann", amount: int = 5) -> str:
    return pay_back(customer, amount)
