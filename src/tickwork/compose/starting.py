"""What every server looks at before it starts, alone or as a node of a cluster."""

import time

from tickwork.compose.settings import BadSettings, Settings
from tickwork.core.base.errors import Refused
from tickwork.core.explain.catch_up_preview import read_policy
from tickwork.ports.system import Clock
from tickwork.version import BUILT_MS


def check_start(settings: Settings, clock: Clock) -> None:
    if clock.wall_ms() < BUILT_MS:
        shown = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(clock.wall_ms() / 1000))
        raise BadSettings(
            "clock", f"the clock shows {shown}, which is before this program was built; set it, then start again"
        )
    if settings.catch_up:
        try:
            read_policy(settings.catch_up)
        except Refused as refused:
            raise BadSettings("bad_setting", refused.message, path="catch_up") from None
