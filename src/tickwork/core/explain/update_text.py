"""What a schedule that listens to updates waits for, in words."""

from tickwork.core.calendar.durations import instant_text
from tickwork.core.state.state import Schedule, Tenant


def missing_updates(schedule: Schedule) -> tuple[str, ...]:
    """Each source that must still have an update before the schedule fires: those of the group that lacks fewest. None
    where any update fires it."""
    on, updates = schedule.when.on, schedule.updates
    if on is None or updates is None or all(len(group) == 1 for group in on.groups):
        return ()
    here = {update.source for update in updates.heard}
    nearest = min(on.groups, key=lambda group: (sum(index not in here for index in group), len(group)))
    since = f"since {instant_text(schedule.begun_ms or schedule.made_ms)}"
    return tuple(f"{on.sources[index].words}: none {since}" for index in nearest if index not in here)


def listening_to_ends(tenant: Tenant) -> list[str]:
    """The schedules that the ends of runs fire."""
    return [
        name
        for name, schedule in tenant.schedules.items()
        if schedule.when.on is not None and any(source.ended for source in schedule.when.on.sources)
    ]
