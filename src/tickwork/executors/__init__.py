"""How a worker runs code: in processes, as programs, over HTTP. Each says what isolation it gives."""
