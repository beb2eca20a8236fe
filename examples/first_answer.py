"""Ask several suppliers, take the first answer, cancel the rest, and ship by what was answered.

    tickwork dev examples/first_answer.py
    tickwork run examples/first_answer.py:purchase -i item=lamp

`tickwork show RUN` lists the losers as cancelled: their attempts were stopped.
"""

import time
from typing import Any

import tickwork as tw


@tw.task
def ask(supplier: str, item: str, answers_in: float) -> dict[str, Any]:
    time.sleep(answers_in)  # stands for a call to the supplier
    return {"supplier": supplier, "item": item, "weight": "heavy" if item == "piano" else "light"}


@tw.task
def send_by(carrier: str, offer: dict[str, Any]) -> str:
    return f"{offer['item']} from {offer['supplier']} by {carrier}"


@tw.workflow
def purchase(item: str = "lamp") -> str:
    offer = tw.first(ask("Near & Co", item, 0.2), ask("Far Ltd", item, 60), ask("Slow Inc", item, 60))
    shipped: str = tw.switch(
        offer["weight"],
        {"light": lambda: send_by("bicycle", offer), "heavy": lambda: send_by("lorry", offer)},
        otherwise=lambda: send_by("post", offer),
    )
    return shipped
