"""What keeps a store in order: retention, value collection, backup, integrity check, auditor."""
