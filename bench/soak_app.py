"""What the worker runs in `tools/soak.py`: each start is a line in a file beside this one, by the task itself.

A line: the id of the run and the number of the attempt. So what began is known without asking the product.
"""

import os
from pathlib import Path

import tickwork as tw

_ledger = os.open(Path(__file__).with_name("ledger"), os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)


@tw.task
def note(ctx: tw.Context) -> None:
    os.write(_ledger, f"{ctx.run_id} {ctx.attempt}\n".encode())


@tw.workflow
def noted() -> None:
    return note()
