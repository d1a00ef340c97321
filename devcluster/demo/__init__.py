"""The product's story on a development cluster, told in a terminal: `python -m devcluster.demo`.

Every chapter does something to a real control plane, shows what kubectl and the API server's audit log say, and
holds it against what is claimed. A claim that does not hold ends the demo with exit status 1.
"""
