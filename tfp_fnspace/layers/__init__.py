"""Keras layers that several methods share."""
