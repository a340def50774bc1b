"""The ``sketch`` space: TVM MetaSchedule's generated design spaces, as named knobs."""
