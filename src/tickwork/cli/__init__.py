"""The command line: a thin skin over the public client, one module per group of commands."""
