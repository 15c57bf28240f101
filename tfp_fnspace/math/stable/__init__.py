"""Stable laws: densities and distribution functions by quadrature, and samples."""
