"""The starter project that `tickwork init` writes."""
