"""What users write against: tasks, workflows, the running context and the client."""
