"""Two models at a time on the graphics cards of each machine, as many machines as there are.

Each machine says what it has, and a task what it takes; nothing else limits how many run.

    tickwork worker examples/programs/gpu_models.py --resources gpu=2      # on each machine
    tickwork run examples/programs/gpu_models.py:evaluate
"""

import tickwork as tw


@tw.task(queue="models", gpu=1, timeout="1h")
def score(model: str) -> str:
    return f"{model} scored {len(model)}"


@tw.workflow
def evaluate(models: list[str] = ["small", "medium", "large", "giant"]) -> list[str]:
    return score.map(models)
