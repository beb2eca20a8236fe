"""A language model that calls tools, as a durable function: each answer and each tool result is recorded.

The model here is a stand-in that needs no account. Each tool is a task, with its own retries, limits and log. A tool
with an effect needs an approval. When the answers have cost the budget of tokens, the run is paused before its next
step; `tickwork resume` lets it spend as much again.

    tickwork run examples/agent_loop.py:assist --input 'question="What does a night in Oslo cost?"'
"""

from dataclasses import dataclass, field

import tickwork as tw


@dataclass
class ToolCall:
    tool: str
    argument: str


@dataclass
class Answer:
    tokens: int
    text: str = ""
    calls: list[ToolCall] = field(default_factory=list)


@tw.task(retries=3)
def look_up(city: str) -> str:
    return f"a night in {city} costs 120 euros"


@tw.task
def book(city: str) -> str:
    return f"booked a night in {city}"


TOOLS = {"look_up": look_up, "book": book}
NEED_APPROVAL = {"book"}


async def ask_model(messages: list[str]) -> Answer:
    """In place of the model's API: first it looks up, then it may book, then it answers."""
    if len(messages) == 1:
        return Answer(50, calls=[ToolCall("look_up", "Oslo"), ToolCall("look_up", "Bergen")])
    if "book" in messages[0] and len(messages) == 3:
        return Answer(60, calls=[ToolCall("book", "Oslo")])
    return Answer(40, text=messages[-1])


async def use(ctx: tw.Durable, call: ToolCall) -> str:
    if call.tool in NEED_APPROVAL:
        decision = await ctx.approval("tool", f"{call.tool}({call.argument})", timeout="1d")
        if not decision:
            return f"{call.tool} was not allowed"
    return await ctx.call(TOOLS[call.tool], call.argument)


@tw.durable(budget=100)
async def assist(ctx: tw.Durable, question: str) -> str:
    messages = [question]
    while True:
        answer = await ctx.step(ask_model, messages, retries=5, timeout="2m", cost="tokens")
        if not answer.calls:
            return answer.text
        messages += await ctx.gather(*[use(ctx, call) for call in answer.calls])
