"""kubelet's side of the agent: its device plugin API, spoken by name and number of our own .proto files."""
