"""Included models: predictors that `chameleon pretrain` wrote."""
