"""Recorded runs -> one HTML file that needs nothing else: to hand to a colleague."""
