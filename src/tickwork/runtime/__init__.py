"""The shell around the machine: time, commits, rows, workers. It carries out; the core decides."""
