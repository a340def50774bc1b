"""Commands about networks and about what runs deliver."""
