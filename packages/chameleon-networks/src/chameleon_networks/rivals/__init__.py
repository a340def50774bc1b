"""Tunes whole networks with TVM's own tuner, MetaSchedule, for comparisons."""
