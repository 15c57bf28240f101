"""Stable distributions: densities and distribution functions by quadrature, and samples."""
