"""Extract, transform, load, from a source that fails twice before it answers.

    tickwork run examples/etl.py:nightly

A failed attempt is retried after `retry_delay`, then after twice that time, and so on up to `retry_max`.
`load` passes its idempotency key on. The key is the same in each attempt, so a repeated insert can be recognised.
"""

import tickwork as tw


@tw.task(retries=5, retry_delay="100ms", retry_max="2s", timeout="30s")
def extract(source: str) -> list[dict[str, int]]:
    attempt = tw.context().attempt
    print(f"reading {source}, attempt {attempt}")
    if attempt <= 2:
        raise ConnectionError(f"{source} did not answer")
    return [{"amount": 120}, {"amount": -20}, {"amount": 75}]


@tw.task
def transform(rows: list[dict[str, int]]) -> list[int]:
    return [row["amount"] for row in rows if row["amount"] > 0]


@tw.task(retries=2)
def load(ctx: tw.Context, amounts: list[int]) -> dict[str, str | int]:
    ctx.log.info("loading %d rows", len(amounts))
    return {"rows": len(amounts), "sum": sum(amounts), "key": ctx.idempotency_key}


@tw.workflow
def nightly(source: str = "shop") -> dict[str, str | int]:
    return load(transform(extract(source)))
