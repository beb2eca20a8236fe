"""A workflow calls another workflow once for each region. Each call is a run of its own, with its own history.

tickwork run examples/child_workflows.py:company
"""

import tickwork as tw

SALES = {"north": [10, 20], "south": [5], "west": [1, 2, 3]}


@tw.task
def sales(region: str) -> list[int]:
    return SALES[region]


@tw.task
def add(numbers: list[int]) -> int:
    return sum(numbers)


@tw.workflow
def region_total(region: str) -> int:
    return add(sales(region))


@tw.workflow
def company(regions: list[str] = ["north", "south", "west"]) -> int:
    return add(region_total.map(regions))
