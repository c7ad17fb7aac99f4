"""Temporary folders of launches: made and signed, read as untrusted, removed; and those that killed drivers left."""
