"""What everything in the core builds on: errors, names, values, strict JSON, stable hashes."""
