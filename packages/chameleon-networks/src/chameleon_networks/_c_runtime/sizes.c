/* Chooses buckets for calls, pads inputs and cuts outputs, as buckets.py does for Python. */

#include "sizes.h"

#include <string.h>

#define ALIGNMENT 64u

static size_t aligned(size_t size) { return (size + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT; }

static int64_t extent_of(const struct sizes *sizes, const struct axis *axis,
                         const int64_t *extents) {
  if (axis->dimension < 0) return axis->factor;
  int64_t extent = extents[axis->dimension];
  for (int32_t number = axis->first; number < axis->first + axis->count; ++number) {
    int64_t stride = sizes->steps[number].stride;
    extent += sizes->steps[number].more;
    extent = (extent < 0 ? extent - stride + 1 : extent) / stride; /* rounded down */
  }
  return axis->factor * extent;
}

size_t shape_of(const struct sizes *sizes, int array, const int64_t *extents, int64_t *shape) {
  const struct form *form = &sizes->arrays[array];
  size_t bytes = (size_t)form->bytes;
  for (int32_t axis = 0; axis < form->rank; ++axis) {
    shape[axis] = extent_of(sizes, &form->axes[axis], extents);
    bytes *= (size_t)shape[axis];
  }
  return bytes;
}

static size_t bytes_of(const struct sizes *sizes, int array, const int64_t *extents) {
  int64_t shape[sizes->arrays[array].rank + 1];
  return shape_of(sizes, array, extents, shape);
}

static int takes(const struct dimension *dimension, int64_t extent, int64_t own) {
  return extent == own || (dimension->is_padded && extent > 0 && extent < own);
}

/* See that no output is empty which has an element in the bucket; 0, or -1 with an error. */
static int check_outputs(const struct sizes *sizes, const int64_t *extents) {
  for (int array = sizes->input_count; array < sizes->array_count; ++array) {
    const struct form *form = &sizes->arrays[array];
    for (const struct axis *axis = form->axes; axis < form->axes + form->rank; ++axis) {
      if (axis->dimension < 0 || extent_of(sizes, axis, extents) > 0) continue;
      set_error("%s %lld is too small, since outputs are empty",
                sizes->dimensions[axis->dimension].name, (long long)extents[axis->dimension]);
      return -1;
    }
  }
  return 0;
}

int is_used(const struct bucket *bucket) {
  if (bucket->tiles == 0) return 1;
  if (ask_for_tiles() == 0) return bucket->tiles > 0;
  set_error("%s", "");
  return bucket->tiles < 0;
}

int choose_bucket(const struct library *library, const int64_t *extents, struct request *request) {
  const struct sizes *sizes = library->sizes;
  int wrong = 0;
  if (extents == NULL) {
    set_error("the extents are NULL");
    return -1;
  }
  for (int number = 0; number < library->bucket_count; ++number) {
    const struct bucket *bucket = &library->buckets[number];
    int fitting = 0, changed = -1;
    while (fitting < sizes->dimension_count) {
      int64_t own = bucket->extents[fitting];
      if (!takes(&sizes->dimensions[fitting], extents[fitting], own)) break;
      if (changed < 0 && extents[fitting] != own) changed = fitting;
      ++fitting;
    }
    if (fitting < sizes->dimension_count) {
      if (fitting > wrong) wrong = fitting;
      continue;
    }
    if (!is_used(bucket)) continue;
    *request = (struct request){number, 0, NULL};
    if (changed < 0) return 0;
    request->extent = (int)extents[changed];
    request->extents = extents;
    return check_outputs(sizes, extents);
  }
  const struct dimension *dimension = &sizes->dimensions[wrong];
  set_error("%s is %lld, and the network takes %s", dimension->name, (long long)extents[wrong],
            dimension->extents);
  return -1;
}

size_t padded_bytes(const struct library *library) {
  size_t most = 0;
  for (int bucket = 0; library->sizes != NULL && bucket < library->bucket_count; ++bucket) {
    size_t bytes = 0;
    for (int array = 0; array < library->sizes->array_count; ++array) {
      bytes += aligned(bytes_of(library->sizes, array, library->buckets[bucket].extents));
    }
    if (bytes > most) most = bytes;
  }
  return most;
}

/* An array of a call, and the larger one of its bucket. */
struct copying {
  const struct form *form;
  const int64_t *part, *whole;            /* their shapes */
  const size_t *part_steps, *whole_steps; /* bytes to the next element of each axis */
  int32_t last;                           /* axis along which they differ */
  int cut;                                /* whether the part is copied from the whole */
};

static void fill(char *to, size_t size, uint64_t pad, size_t bytes) {
  if (pad == 0) memset(to, 0, size);
  for (size_t at = 0; pad != 0 && at < size; at += bytes) memcpy(to + at, &pad, bytes);
}

/* Copy from an axis on. `part` is NULL beside the part, where all elements are pads: `pad` unless a
 * later axis has its own. */
static void copy(const struct copying *all, int32_t axis, char *whole, char *part, uint64_t pad) {
  uint64_t own = all->form->axes[axis].pad;
  int64_t inside = all->part[axis], end = all->cut ? inside : all->whole[axis];
  size_t step = all->whole_steps[axis], bytes = (size_t)all->form->bytes;
  if (axis < all->last) {
    for (int64_t place = 0; place < end; ++place, whole += step) {
      char *next = part == NULL || place >= inside ? NULL : part;
      copy(all, axis + 1, whole, next, place < inside ? pad : own);
      if (next != NULL) part += all->part_steps[axis];
    }
    return;
  }
  size_t size = (size_t)inside * step;
  if (all->cut) {
    memcpy(part, whole, size);
    return;
  }
  if (part == NULL) fill(whole, size, pad, bytes);
  if (part != NULL) memcpy(whole, part, size);
  fill(whole + size, (size_t)end * step - size, own, bytes);
}

/* Copy a call's array to that of its bucket, or back; 0, or -1 if both have one shape. */
static int copy_array(const struct library *library, const struct request *request, int array,
                      char *whole, char *part, int cut) {
  const struct form *form = &library->sizes->arrays[array];
  const int64_t *extents = library->buckets[request->bucket].extents;
  int64_t inner[form->rank + 1], outer[form->rank + 1];
  size_t inner_steps[form->rank + 1], outer_steps[form->rank + 1];
  struct copying all = {form, inner, outer, inner_steps, outer_steps, -1, cut};
  shape_of(library->sizes, array, request->extents, inner);
  shape_of(library->sizes, array, extents, outer);
  size_t step = (size_t)form->bytes, own = step;
  for (int32_t axis = form->rank; axis-- > 0;) {
    if (all.last < 0 && inner[axis] != outer[axis]) all.last = axis;
    inner_steps[axis] = own;
    outer_steps[axis] = step;
    own *= (size_t)inner[axis];
    step *= (size_t)outer[axis];
  }
  if (all.last < 0) return -1;
  if (whole != NULL) copy(&all, 0, whole, part, 0);
  return 0;
}

void pad_inputs(const struct library *library, const struct request *request, void *const *given,
                char *memory, void **padded) {
  const struct sizes *sizes = library->sizes;
  for (int array = 0; array < sizes->array_count; ++array) {
    char *whole = array < sizes->input_count ? memory : NULL;
    padded[array] = given[array];
    if (copy_array(library, request, array, whole, given[array], 0) != 0) continue;
    padded[array] = memory;
    memory += aligned(bytes_of(sizes, array, library->buckets[request->bucket].extents));
  }
}

void cut_outputs(const struct library *library, const struct request *request, void *const *given,
                 void *const *padded) {
  for (int array = library->sizes->input_count; array < library->sizes->array_count; ++array) {
    copy_array(library, request, array, padded[array], given[array], 1);
  }
}
