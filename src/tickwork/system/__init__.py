"""The real machine: clocks, files, ids, processes, zone data."""
