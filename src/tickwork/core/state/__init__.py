"""What a partition holds, what comes in, what goes out: state, inputs, events, effects, ready queues, timers."""
