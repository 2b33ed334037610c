"""Where fetched pages go."""
