"""Posterior inference for the alpha-stable limit of wide networks (Loria and Bhadra)."""
