"""Pydantic models of our kinds and of the assignment annotation, and the CRDs made from them."""
