"""Attacks on releases: what they show of single samples, measured."""
