"""The pure core: facts in, values out. No clock, no I/O, no asyncio, no Kubernetes JSON."""
