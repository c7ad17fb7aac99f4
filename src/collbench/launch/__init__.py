"""Launches: ranks are placed on the host and in containers, started, and their records collected."""
