"""A cluster for a night's work, and in it a table for the loads: each is set up, used and removed in any case.

tickwork run examples/programs/nested_setup.py:nightly
tickwork cancel RUN     # removes the table, then the cluster
"""

import tickwork as tw


@tw.task
def rent_cluster(nodes: int) -> str:
    return f"cluster of {nodes}"


@tw.task
def create_table(cluster: str) -> str:
    return f"table on {cluster}"


@tw.task
def load(table: str, part: str) -> int:
    return len(f"{part} into {table}")


@tw.task
def report(cluster: str, rows: list[int]) -> str:
    return f"{sum(rows)} rows, counted on the {cluster}"


@tw.task(retries=3)
def drop_table(table: str) -> None:
    print("dropped the", table)


@tw.task(retries=3)
def return_cluster(cluster: str) -> None:
    print("returned the", cluster)


@tw.workflow
def nightly(nodes: int = 3) -> str:
    cluster = rent_cluster(nodes)
    with tw.teardown(return_cluster, cluster, fail=True):  # it costs money: a cluster that is left must be noticed
        table = create_table(cluster)
        with tw.teardown(drop_table, table):
            rows = load.map(["orders", "prices", "stock"], table=table)
        return report(cluster, rows)
