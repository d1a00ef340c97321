"""Which pod's cards a container gets: the answers to Allocate, and the files that the runtime reads at a start."""
