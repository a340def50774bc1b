"""The baseline of a user of TVM who does not tune."""
