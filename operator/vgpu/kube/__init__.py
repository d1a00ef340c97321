"""The way to the API server that operator and agent share: client and reflector."""
