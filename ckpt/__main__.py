"""`python -m ckpt` is the `ckpt` command."""

from __future__ import annotations

from ckpt.cli import main

if __name__ == "__main__":
    main(prog_name="ckpt")
