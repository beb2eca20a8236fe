"""Python values to plain data and back."""
