"""The space ``sketch``: the design spaces that TVM's MetaSchedule generates, with named knobs."""
