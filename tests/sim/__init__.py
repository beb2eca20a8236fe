"""The deterministic world: virtual time, network, disks and faults from one seed; the same seed, the same story."""
