"""Record databases: what one machine has measured, another one like it does not measure again.

A pipeline's ``records`` names one or several; ``chameleon records`` shows, merges and prunes them.
"""
