"""What puts, gets, opening, recovery and garbage collection cost as keys grow: `ckpt bench growth`."""
