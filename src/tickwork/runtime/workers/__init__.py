"""Worker sessions, the failure detector and reports."""
