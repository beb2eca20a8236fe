"""The part of the clients for operators: policies, limits, settings, dead letters, alarms."""
