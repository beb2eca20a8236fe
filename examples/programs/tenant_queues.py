"""Limits per tenant and for all, a rate, and one run for a burst of changes.

`concurrency` lets each tenant index two documents at a time; the limits of the queue count for all tenants together.
Edits of one document within ten seconds become one run with the last text, which starts after a minute at the latest.

    python examples/programs/tenant_queues.py
"""

from typing import Any, Protocol

import tickwork as tw

LIMITS = {"limit": 3, "rate": 20, "per": "1m", "window": "sliding"}


class Service(Protocol):
    """What submits documents and sets limits."""

    def submit(self, *args: Any, **options: Any) -> Any: ...
    def put_queue(self, *args: Any, **limits: Any) -> Any: ...


@tw.task(queue="indexing")
def index(tenant: str, document: str, text: str) -> str:
    return f"{tenant}/{document}: {len(text.split())} words"


@tw.workflow(concurrency=(2, "tenant"))
def indexed(tenant: str, document: str, text: str) -> str:
    return index(tenant, document, text)


def set_limits(service: Service) -> None:
    service.put_queue("indexing", **LIMITS)


def edited(service: Service, tenant: str, document: str, text: str) -> Any:
    inputs = {"tenant": tenant, "document": document, "text": text}
    return service.submit(indexed, inputs, debounce=f"{tenant}/{document}", delay="10s", at_most="1m")


if __name__ == "__main__":
    with tw.Client() as client:
        client.publish(indexed)
        set_limits(client)
        edited(client, "ada", "letter", "dear Eve")
