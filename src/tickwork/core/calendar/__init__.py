"""When something is due: cron, recurrence rules, time zones, local time, durations."""
