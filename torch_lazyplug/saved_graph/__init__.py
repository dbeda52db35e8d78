"""A recorded graph to take away: one file that another process runs, and that a report of a bug can carry.

``python -m torch_lazyplug.saved_graph FILE`` runs it.
"""

from torch_lazyplug.saved_graph.files import SavedGraph, load_graph, save_graph

__all__ = ["SavedGraph", "load_graph", "save_graph"]
