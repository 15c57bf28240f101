"""Files that serve predictions where neither this library nor Keras is installed."""

from tfp_fnspace.export.endpoints import check_served_range
from tfp_fnspace.export.programs import ENDINGS, export_program
from tfp_fnspace.export.saved_model import export_saved_model

__all__ = ["ENDINGS", "check_served_range", "export_program", "export_saved_model"]
