"""GPU sharing for Kubernetes: card-level placement, one atomic binding, no handshake."""
