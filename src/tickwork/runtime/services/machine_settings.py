"""The machine's settings: those in force, and their changes."""

from collections.abc import Mapping

import msgspec

from tickwork.core.base.machine_settings import CHANGEABLE, check_settings
from tickwork.core.state import inputs as inp
from tickwork.core.state.state import Settings
from tickwork.protocol import http_models as wire
from tickwork.runtime.context import EngineContext

_DEFAULTS = Settings()


class SettingsService:
    def __init__(self, context: EngineContext) -> None:
        self._context = context

    async def settings(self) -> wire.Settings:
        settings = self._context.state.settings
        changeable = [
            wire.Setting(
                name=name, value=getattr(settings, name), default=getattr(_DEFAULTS, name), does=spec.does,
                changeable=True, low=spec.low, high=spec.high,
            )
            for name, spec in CHANGEABLE.items()
        ]  # fmt: skip
        fixed = wire.Setting(
            name="resolution_ms", value=settings.clock.resolution_ms, default=_DEFAULTS.clock.resolution_ms,
            does="Milliseconds of one tick of the logical clock.",
        )  # fmt: skip
        await self._context.until_durable()
        return wire.Settings(settings=(*changeable, fixed))

    async def put(self, values: Mapping[str, int], *, by: str) -> None:
        """Change these settings, in one tick; all others stay. What is in force already is not recorded again."""
        check_settings(values)
        in_force = msgspec.structs.asdict(self._context.state.settings)
        changes = {name: value for name, value in values.items() if in_force[name] != value}
        await self._context.command_all([inp.PutSettings(by, changes)] if changes else [])
