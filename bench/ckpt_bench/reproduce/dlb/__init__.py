"""Load balancing of complex event processing (DAIS 2016): table 1 and figures 3 and 4, simulated."""
