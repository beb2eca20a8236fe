"""The worker: an agent that exchanges work for results, and never runs user code itself."""
