"""Programs by kind; each module registers its own in `registry`."""
