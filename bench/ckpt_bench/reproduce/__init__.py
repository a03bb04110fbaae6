"""Papers whose experiments run again here: what they found beside what is found on this machine."""
