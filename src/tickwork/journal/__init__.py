"""PURE: inputs and events to bytes and back, hash chain, upcasters, replay."""
