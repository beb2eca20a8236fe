"""Schedules: their commands, their firing, backfills."""
