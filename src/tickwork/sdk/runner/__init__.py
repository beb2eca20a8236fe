"""The child process that runs the code of applications."""
