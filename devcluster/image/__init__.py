"""Images for the real node, made on this machine without a container engine: the product's and kube-scheduler's.

Enters: the Dockerfile, its context, a built program. Leaves: image archives that containerd imports, in the user's
cache. May not live here: nodes, and what runs from the images.
"""
