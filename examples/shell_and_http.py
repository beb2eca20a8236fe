"""Tasks without a Python function: a program, and a call to a URL.

    tickwork dev examples/shell_and_http.py
    tickwork run examples/shell_and_http.py:check --input text="some words here"

A program is a list of arguments, without a shell. It receives its inputs as JSON on standard input. The URL in this
example is that of the server itself.
"""

from typing import Any

import tickwork as tw

URL = "http://127.0.0.1:8440/healthz"
COUNT = "import json, sys; print(len(json.load(sys.stdin)['text'].split()))"


@tw.task
def both(counted: dict[str, Any], answered: dict[str, Any]) -> dict[str, int]:
    return {"words": int(counted["output"]), "status": answered["status"]}


@tw.workflow
def check(text: str = "to be or not to be") -> dict[str, int]:
    counted = tw.shell(["python3", "-c", COUNT], args={"text": text}, timeout="30s")
    answered = tw.http(URL, success="status == 200", retries=3, retry_delay="200ms")
    return both(counted, answered)
