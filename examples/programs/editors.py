"""People in a pipeline: one writes, one chooses, one approves with a time limit; what follows depends on their answers.

Each form says what it takes, and an answer is checked when it is given:

    tickwork run examples/programs/editors.py:publish --detach
    tickwork approve RUN draft --set title=Ticks --set urgent=true
    tickwork approve RUN channel --set where=mail
    tickwork approve RUN check --set approve=true
"""

from typing import Literal

import tickwork as tw


@tw.task
def to_blog(title: str) -> str:
    return f"{title} is on the blog"


@tw.task
def to_mail(title: str, urgent: bool) -> str:
    return f"{title} was mailed{' at once' if urgent else ''}"


@tw.task
def keep(title: str, reason: str | None, by: str) -> str:
    return f"{title} is kept back: {reason or 'no reason'} ({by or 'nobody answered'})"


@tw.workflow
def publish(topic: str = "deterministic schedulers") -> str:
    draft = tw.form(
        "draft",
        text=tw.text("Write about {topic}", topic=topic),
        fields={"title": str, "words": 300, "urgent": False},
    )
    channel = tw.form(
        "channel",
        text=tw.text("Where does {title} go?", title=draft.title),
        fields={"where": Literal["blog", "mail"]},
        timeout="1h",
        default={"where": "blog"},
    )
    check = tw.form(
        "check",
        approvers=["eve", "bob"],
        text=tw.text("{title}, {n} words, goes to the {where}", title=draft.title, n=draft.words, where=channel.where),
        fields={"approve": bool, "reason": str | None},
        timeout="1d",
        default={"approve": False},
    )
    published: str = tw.branch(
        check.approve,
        lambda: tw.switch(
            channel.where,
            {"blog": lambda: to_blog(draft.title), "mail": lambda: to_mail(draft.title, draft.urgent)},
        ),
        lambda: keep(draft.title, check.reason, check.by),
    )
    return published
