"""An agent loop with an approval: find out what fills the database, propose a clean-up, delete once a person agrees.

It ends early where there is nothing to do, where the person says no, and where nobody answers.

    tickwork run examples/programs/database_cleanup.py:clean_up
    tickwork approve RUN delete
"""

from dataclasses import dataclass
from typing import Literal

import tickwork as tw


@dataclass
class Advice:
    tool: Literal["count_rows", "oldest_row", "propose"]
    table: str = ""
    reason: str = ""


def count_rows(table: str) -> str:
    return f"{table} has 2000 rows"


def oldest_row(table: str) -> str:
    return f"the oldest row of {table} is of 2019"


def ask_model(known: list[str]) -> Advice:
    """Stands for a language model: it looks twice, then it proposes."""
    tools = (Advice("count_rows", "runs"), Advice("oldest_row", "runs"))
    return tools[len(known)] if len(known) < len(tools) else Advice("propose", "runs", "; ".join(known))


@tw.task(retries=2)
def delete_old_rows(table: str) -> int:
    print(f"deleting old rows of {table}")
    return 2_000


TOOLS = {"count_rows": count_rows, "oldest_row": oldest_row}


@tw.durable
async def clean_up(ctx: tw.Durable, limit: int = 10) -> str:
    known: list[str] = []
    for _ in range(limit):
        advice = await ctx.step(ask_model, known, retries=4, timeout="2m")
        if advice.tool == "propose":
            break
        known.append(await ctx.step(TOOLS[advice.tool], advice.table))
    else:
        return "the model did not come to an end"
    if not advice.table:
        return "nothing to clean up"
    decision = await ctx.approval("delete", f"{advice.reason}: delete old rows of {advice.table}?", timeout="1d")
    if decision.timed_out:
        return "nobody answered"
    if not decision:
        return f"not deleted: {decision.comment}"
    return f"deleted {await ctx.call(delete_old_rows, advice.table)} rows, as {decision.by} approved"
