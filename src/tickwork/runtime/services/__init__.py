"""What callers ask of an engine: runs, workflows, schedules, endpoints, queries."""
