"""Speed, always as a ratio to a reference measured in the same run. Limits stand in limits.toml."""
