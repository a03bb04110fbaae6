"""mnrt-2017: keys of a join that are split when they have to be, and merged when they can be."""
