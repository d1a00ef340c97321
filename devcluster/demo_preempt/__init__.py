"""Preemption's story on a development cluster, told in a terminal: `python -m devcluster.demo_preempt`.

A full cluster, work that may take its share back, who goes for it and who does not, a hole that is held, and the
return of everyone. Each claim is held against the API server; one that does not hold ends it with exit status 1.
"""
