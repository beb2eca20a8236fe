"""Whether the code of a durable function still makes the calls that a run of it has recorded. No step is run."""

from tickwork.core.base.values import pack
from tickwork.protocol.worker_messages import history_decoder, recorded_decoder
from tickwork.sdk.authoring.app_loader import Handler
from tickwork.sdk.context import Context, StepsChanged
from tickwork.sdk.durable.driver import Driver, seed_of
from tickwork.sdk.durable.function import Durable


def difference(handler: Handler, data: bytes) -> str:
    """Where a replay of a `RecordedFunction` first leaves its history; "" if it follows it to its end."""
    recorded = recorded_decoder.decode(data)
    driver = Driver(history_decoder.decode(recorded.history), seed=seed_of(recorded))
    context = Context(tenant=recorded.tenant, run_id=recorded.run_id, workflow=handler.name, node=handler.name)
    inputs = recorded.inputs if recorded.inputs != pack(None) else pack({})
    driver.begin(handler.call(inputs, Durable(driver, context)))
    driver.advance()
    try:
        return str(driver.failure) if isinstance(driver.failure, StepsChanged) else ""
    finally:
        driver.close()
