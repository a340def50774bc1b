"""A network whose convolutions can be changed: layers, channels that agree, its space."""
