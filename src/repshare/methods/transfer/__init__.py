"""Methods in which a second model, small or large, carries knowledge between clients."""
