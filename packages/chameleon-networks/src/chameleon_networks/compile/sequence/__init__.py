"""Static networks as a sequence of kernel calls, with memory planned when they are compiled."""
