"""What the command line does: tables in files, models in folders, a server."""
