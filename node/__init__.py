"""The node: fetch politely what you own."""
