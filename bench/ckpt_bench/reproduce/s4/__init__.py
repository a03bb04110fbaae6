"""The thesis about checkpoints of Apache S4 (2012): figures 4.1, 4.2, 4.5 to 4.7, 5.1, tables 5.1 and 5.2."""
