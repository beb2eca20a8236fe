"""A support ticket: answer, await the customer's reply, and escalate to a person when nobody is satisfied.

The customer may reply while the answer is still being written: the mailbox keeps the reply for its ticket, and the
function takes it when it waits. A reply that nobody takes is gone after a week.

    tickwork run examples/programs/support_ticket.py:ticket --input number=T-42 --input question="no sound" --detach
    tickwork signal customer-reply --key T-42 --payload '{"message": "still no sound"}'
    tickwork mailboxes customer-reply --key T-42
"""

import tickwork as tw

replies = tw.mailbox("customer-reply", keep="7d", max=20, fields={"message": str})

ANSWERS_MAX = 3


def write_answer(question: str, conversation: list[str]) -> str:
    """A real program would ask a model."""
    return f"about {question!r}: try to restart it (suggestion {len(conversation) // 2 + 1})"


def send(number: str, text: str) -> None:
    print(f"{number}: {text}")


def satisfied(reply: str) -> bool:
    return "thanks" in reply.lower()


@tw.task
def escalate(number: str, conversation: list[str]) -> str:
    return f"{number} is with a person, after {len(conversation)} messages"


@tw.durable
async def ticket(ctx: tw.Durable, number: str, question: str) -> str:
    conversation: list[str] = []
    for _ in range(ANSWERS_MAX):
        answer = await ctx.step(write_answer, question, conversation, retries=5)
        await ctx.step(send, number, answer, retries=5)
        reply = await ctx.event(str(replies), key=number, timeout="2d")
        if reply is None:
            await ctx.step(send, number, "we close your ticket", retries=5)
            return "closed without a reply"
        conversation += [answer, reply["message"]]
        if satisfied(reply["message"]):
            return "solved"
    return await ctx.call(escalate, number, conversation)
