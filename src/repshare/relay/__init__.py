"""The relay: a board between clients that are somewhere else, over HTTP. It never trains, and needs no PyTorch."""
