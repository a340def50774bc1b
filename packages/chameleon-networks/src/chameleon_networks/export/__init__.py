"""Winners delivered for those who have no Chameleon: operators as libraries, bundles for C."""
