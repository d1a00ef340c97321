"""`python -m vgpu.cli`."""

from vgpu.cli.main import main

main()
