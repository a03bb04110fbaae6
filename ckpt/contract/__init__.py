"""What a backend promises, and how an address becomes one; knows no medium and no driver."""
