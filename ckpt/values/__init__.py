"""States to bytes and back: nothing changes silently, and a changed byte is an error."""
