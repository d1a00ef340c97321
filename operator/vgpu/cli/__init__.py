"""The command line for people: `kubectl vgpu`, or `python -m vgpu.cli`. Asks and shows; writes nothing."""
