"""The backends that ship with ckpt, each behind the contract of `ckpt.contract.backend`."""
