"""Assets: what is known of data by its name, who makes it and who listens to it."""

from typing import Any

from tickwork.core.base.errors import Refused
from tickwork.core.base.names import TENANT, check_name
from tickwork.core.base.shortened import shortened
from tickwork.core.base.values import INLINE_BYTES_MAX, Value, pack, unpack
from tickwork.core.decide.commands.signals import DUPLICATE
from tickwork.core.state.inputs import UpdateAsset
from tickwork.core.state.state import Tenant
from tickwork.core.state.updates import Asset, AssetUpdate
from tickwork.protocol import http_models as wire
from tickwork.runtime.context import EngineContext
from tickwork.runtime.views.text import instant


class AssetService:
    def __init__(self, context: EngineContext) -> None:
        self._context = context

    async def update(
        self, name: str, request: wire.AssetUpdateRequest, *, by: str, key: str = "", tenant: str = TENANT
    ) -> wire.AssetHeard:
        """Say that there is new data. `key` tells repeated requests."""
        command = update_of(name, request, by=by, tenant=tenant, key=key)
        message = (await self._context.command(command)).message
        if message == DUPLICATE:
            return wire.AssetHeard(duplicate=True)
        return wire.AssetHeard(schedules=int(message.partition(" ")[0]))

    async def assets(self, *, tenant: str = TENANT) -> wire.Assets:
        """By name: those that were updated, that a workflow makes, or to which a schedule listens."""
        owner = self._context.tenant(tenant)
        producers, consumers = _producers(owner), _consumers(owner)
        names = sorted({*owner.assets, *producers, *consumers})
        found = tuple(_view(name, owner.assets.get(name), producers, consumers) for name in names)
        await self._context.until_durable()
        return wire.Assets(assets=found)

    async def asset(self, name: str, *, tenant: str = TENANT) -> wire.Asset:
        owner = self._context.tenant(tenant)
        producers, consumers, asset = _producers(owner), _consumers(owner), owner.assets.get(name)
        if asset is None and name not in producers and name not in consumers:
            raise Refused("unknown_asset", f"there is no asset {shortened(name, 128)!r}", path="asset")
        view = _view(name, asset, producers, consumers, whole=True)
        await self._context.until_durable()
        return view


def update_of(name: str, request: wire.AssetUpdateRequest, *, by: str, tenant: str, key: str = "") -> UpdateAsset:
    check_name(name, path="asset", kind="asset")
    details: Value = pack(request.details) if request.details else None
    if isinstance(details, bytes) and len(details) > INLINE_BYTES_MAX:
        message = f"the details of an update have at most {INLINE_BYTES_MAX} bytes; put the data elsewhere"
        raise Refused("value_too_large", message, path="details")
    return UpdateAsset(by, tenant, name, request.partition, details, request.id or key)


def _producers(owner: Tenant) -> dict[str, list[wire.Producer]]:
    found: dict[str, list[wire.Producer]] = {}
    for name, plan in sorted(owner.plans.items(), key=lambda pair: pair[0]):
        for step in plan.steps:
            for asset in getattr((step.body or step).node, "produces", ()):
                found.setdefault(asset, []).append(wire.Producer(workflow=name, node=step.id))
    return found


def _consumers(owner: Tenant) -> dict[str, list[wire.Consumer]]:
    found: dict[str, list[wire.Consumer]] = {}
    for name, schedule in owner.schedules.items():
        for source in schedule.when.on.sources if schedule.when.on is not None else ():
            if source.asset:
                found.setdefault(source.asset, []).append(wire.Consumer(schedule=name, workflow=schedule.workflow))
    return found


def _view(
    name: str,
    asset: Asset | None,
    producers: dict[str, list[wire.Producer]],
    consumers: dict[str, list[wire.Consumer]],
    *,
    whole: bool = False,
) -> wire.Asset:
    latest = asset.latest if asset is not None else ()
    partitions = asset.partitions if asset is not None and whole else ()
    return wire.Asset(
        name=name,
        count=asset.count if asset is not None else 0,
        updated_at=instant(latest[-1].at_ms) if latest else None,
        produced_by=tuple(producers.get(name, ())),
        consumed_by=tuple(consumers.get(name, ())),
        updates=tuple(_update(update) for update in reversed(latest)) if whole else (),
        partitions=tuple(
            wire.AssetPartition(partition=partition, updated_at=instant(at_ms))
            for partition, at_ms in reversed(partitions)
        ),
    )


def _update(update: AssetUpdate) -> wire.AssetUpdate:
    details: Any = unpack(update.details, what="details") if isinstance(update.details, bytes) else None
    return wire.AssetUpdate(
        at=instant(update.at_ms), by=update.by, source=update.source, partition=update.partition, details=details
    )
