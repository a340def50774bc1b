"""Networks compiled: tuned kernels in place, and the calls between them."""
