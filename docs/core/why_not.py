"""Two runs and a queue with a limit of one: why has the second run not started?"""

import json

from tickwork.core.explain.why_not import why_not
from tickwork.core.machine import Machine
from tickwork.core.state import inputs

nodes = [{"kind": "task", "id": "fetch", "handler": "fetch"}]
document = json.dumps({"name": "daily", "nodes": nodes}).encode()

machine = Machine()
machine.apply(
    1,
    [
        inputs.PutTenant("ops", "acme"),
        inputs.PutQueue("ops", "default", limit=1),
        inputs.PutDefinition("ops", "acme", document),
        inputs.Offer("laptop", credit=8),
        inputs.Submit("alice", "acme", "monday", "daily"),
        inputs.Submit("alice", "acme", "tuesday", "daily"),
    ],
)

answer = why_not(machine.state, "acme", "tuesday")
assert answer is not None
for node in answer.nodes:
    for obstacle in node.obstacles:
        print(f"{node.node} is {node.phase}: {obstacle.text}. {obstacle.remedy}")
