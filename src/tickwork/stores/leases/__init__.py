"""Leases in memory, Redis and etcd."""
