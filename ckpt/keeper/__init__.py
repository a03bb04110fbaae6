"""The SafeKeeper: states become checkpoints asynchronously, and every save is accounted for."""
