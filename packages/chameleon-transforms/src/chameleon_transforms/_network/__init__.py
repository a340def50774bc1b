"""A network whose convolutions can be changed: its layers, groups of channels, design space."""
