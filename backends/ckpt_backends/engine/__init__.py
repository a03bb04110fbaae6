"""Frames, index, replay and collection: what a local log and object stores share."""
