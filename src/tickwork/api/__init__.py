"""The public HTTP API: what command line, client, worker and page talk to, with nothing private beside it."""
