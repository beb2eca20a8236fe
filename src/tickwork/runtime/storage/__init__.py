"""Values, archives, logs and records as the store keeps them."""
