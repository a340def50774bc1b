"""Static networks as a sequence of kernel calls, whose memory is planned at compile time."""
