"""The methods, one folder per paper; they do not import each other."""
