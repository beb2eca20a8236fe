"""Whether the code of a durable function still makes the calls that a run of it has recorded. No step is run."""

import msgspec

from tickwork.core.base.values import Ref
from tickwork.protocol.worker_messages import history_decoder
from tickwork.sdk.authoring.app_loader import Handler
from tickwork.sdk.context import Context, StepsChanged
from tickwork.sdk.durable.driver import Driver
from tickwork.sdk.durable.function import Durable


def difference(handler: Handler, run_id: str, inputs: object, history: bytes) -> str:
    """Where a replay first leaves the history; "" if it follows it to its end. Raises what the function raises for
    another reason before that."""
    recorded = history_decoder.decode(history)
    entries = [
        msgspec.structs.replace(entry, value=None) if isinstance(entry.value, Ref) else entry
        for entry in recorded.entries
    ]
    driver = Driver(msgspec.structs.replace(recorded, entries=tuple(entries)), seed=run_id)
    context = Context(run_id=run_id, workflow=handler.name, node=handler.name)
    driver.begin(handler.call(msgspec.msgpack.encode(inputs or {}), Durable(driver, context)))
    driver.advance()
    try:
        return str(driver.failure) if isinstance(driver.failure, StepsChanged) else ""
    finally:
        driver.close()
