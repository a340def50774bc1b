"""Commands of ``chameleon`` about networks and about delivered folders."""
