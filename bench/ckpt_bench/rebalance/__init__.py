"""How fast planners are and how much state they move: `ckpt bench plan`."""
