"""Typed inputs choose which tasks run: a greeting in each language that was chosen.

The server checks the inputs before a run starts: a tone that does not exist is refused.

    tickwork run examples/programs/typed_inputs.py:greet_all -i 'names=["Ada"]' -i german=true -i tone=formal
"""

from typing import Literal

import tickwork as tw


@tw.task
def greet(name: str, greeting: str, tone: str) -> str:
    return f"{greeting}, {name}{'.' if tone == 'formal' else '!'}"


@tw.task
def collect(english: list[str] | None, german: list[str] | None, french: list[str] | None) -> list[str]:
    return [*(english or []), *(german or []), *(french or [])]


@tw.workflow
def greet_all(
    names: list[str] = ["Linda", "Martha"],
    english: bool = True,
    german: bool = False,
    french: bool = False,
    tone: Literal["formal", "friendly"] = "friendly",
) -> list[str]:
    return collect.using(on="none_failed")(
        tw.branch(english, lambda: greet.map(names, greeting="Hello", tone=tone)),
        tw.branch(german, lambda: greet.map(names, greeting="Guten Tag", tone=tone)),
        tw.branch(french, lambda: greet.map(names, greeting="Bonjour", tone=tone)),
    )
