"""Our backends and their peers in turn, in one run, at equal durability: `ckpt bench compare`."""
