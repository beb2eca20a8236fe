"""Clients of a server, synchronous and asynchronous."""
