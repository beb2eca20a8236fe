"""The tick loop of a partition: input queue, facts, commit writer, clocks, pacing, recovery, write-behind."""
