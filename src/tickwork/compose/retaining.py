"""How long what is kept, from the settings."""

from tickwork.compose.settings import BadSettings, Settings
from tickwork.core.base.errors import Refused
from tickwork.runtime.maintenance.retention import RetentionPolicy, keep_of


def how_long(settings: Settings) -> RetentionPolicy:
    try:
        return keep_of(
            runs=settings.retention_runs,
            journal=settings.retention_journal,
            archive=settings.retention_archive,
            logs=settings.retention_logs,
        )
    except Refused as refused:
        raise BadSettings("bad_setting", refused.message, path=refused.path) from None
