"""Demo."""


def run(output_dir):
    return 0
