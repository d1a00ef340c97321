"""The product as its users install it, on a real node: the built image, `kubectl apply -k`, and pods with shares.

Enters: nothing. Leaves: a story on the terminal whose claims are held against what was seen. May not live here:
how the node and the images are made.
"""
