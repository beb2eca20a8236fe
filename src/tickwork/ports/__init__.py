"""What the shell needs from the world, as Protocols and plain values; adapters live elsewhere."""
