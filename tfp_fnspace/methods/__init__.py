"""The five methods, one folder a paper; they do not import each other."""
