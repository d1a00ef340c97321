"""The node agent: reads the cards, publishes one GpuNodeInventory when something changed, and serves kubelet."""
