/* What is special to a network. "tables.h" is generated for each by compile/sequence/library.py. */

#include "sequence.h"
#include "tables.h"

const struct sequence sequence = {
    .layout = (int64_t)(LAYOUT),
    .packing = (int64_t)(PACKING),
    .arena_size = ARENA_SIZE,
    .constant_count = CONSTANTS,
    .input_count = INPUTS,
    .tensor_count = TENSORS,
    .bound_count = BOUND,
    .argument_count = ARGUMENTS,
    .call_count = CALLS,
    .copy_count = COPIES,
    .repacking_count = REPACKINGS,
    .extent = EXTENT,
    .extents = extents,
    .strides = strides,
    .tensors = tensors,
    .bound = bound,
    .passed = passed,
    .loops = loops,
    .sums = sums,
    .calls = calls,
    .copies = copies,
    .repackings = repackings,
    .places = places,
    .kernels = kernels,
};
