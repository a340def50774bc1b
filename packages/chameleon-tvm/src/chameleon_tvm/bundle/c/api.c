/* The functions of a bundle's header, around the function that opens a call sequence (run.c).
 *
 * "bundle-tables.h" is generated for each bundle, beside its header. What a call sequence needs of TVM's
 * FFI (tvm/ffi/c_api.h) is here as well, as far as it needs it: errors, and one kind of function.
 */

#define _GNU_SOURCE
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tvm/ffi/c_api.h>

#include "bundle-tables.h"
#include "support.h"

#if defined(__linux__)
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

#define HUGE_PAGE (2u << 20)
#define GIVEN (INPUTS + OUTPUTS)

struct function {
  void *self;
  TVMFFISafeCallType call;
  void (*close)(void *self);
};

struct HANDLE {
  struct function *network;
  struct pool *pool;
  struct workspaces workspaces; /* of the calling thread */
  char *weights;
  _Atomic int running;
};

/* A tensor as TVM's FFI passes it: the object's head, then the tensor. */
struct owned {
  TVMFFIObject head;
  DLTensor tensor;
};

static _Thread_local char error[512];

const char *last_error(void) { return error; }

void set_error(const char *format, ...) {
  va_list values;
  va_start(values, format);
  vsnprintf(error, sizeof(error), format, values);
  va_end(values);
}

/* What call sequences and kernels call of TVM's FFI. Weights belong to the handle, which outlives
 * the sequence that is opened with them, so that nothing is counted. */
void TVMFFIErrorSetRaisedFromCStr(const char *kind, const char *message) {
  set_error("%s: %s", kind, message);
}

void TVMFFIErrorSetRaisedFromCStrParts(const char *kind, const char **parts, int32_t count) {
  set_error("%s: ", kind);
  for (int32_t part = 0; part < count; ++part) {
    strncat(error, parts[part], sizeof(error) - strlen(error) - 1);
  }
}

int TVMFFIObjectIncRef(TVMFFIObjectHandle object) {
  (void)object;
  return 0;
}

int TVMFFIObjectDecRef(TVMFFIObjectHandle object) {
  (void)object;
  return 0;
}

int TVMFFIFunctionCreate(void *self, TVMFFISafeCallType call, void (*close)(void *),
                         TVMFFIObjectHandle *made) {
  struct function *function = malloc(sizeof(*function));
  if (function == NULL) {
    set_error("there is not enough memory");
    return -1;
  }
  *function = (struct function){self, call, close};
  *made = function;
  return 0;
}

/* Only the names of kernels are strings, which nobody asks a bundle for. */
int TVMFFIStringFromByteArray(const TVMFFIByteArray *text, TVMFFIAny *result) {
  (void)text, (void)result;
  set_error("a bundle makes no strings");
  return -1;
}

int __tvm_ffi_network_open(void *self, const TVMFFIAny *arguments, int32_t count,
                           TVMFFIAny *result);

/* Whether a flag is among those of the processor, by the letters and digits of its name. */
static int has_flag(const char *line, const char *flag) {
  size_t length = strlen(flag);
  while (*line != '\0') {
    char word[64];
    size_t written = 0;
    for (; *line != '\0' && *line != ' ' && *line != '\t' && *line != '\n'; ++line) {
      if (strchr("._-", *line) == NULL && written + 1 < sizeof(word)) word[written++] = *line;
    }
    if (written == length && memcmp(word, flag, length) == 0) return 1;
    while (*line == ' ' || *line == '\t' || *line == '\n') ++line;
  }
  return 0;
}

/* See that the processor has what the kernels were compiled for, where the system shows it. */
static int check_processor(void) {
  FILE *file = fopen(PROCESSOR, "r");
  if (file == NULL) return 0;
  char *line = NULL;
  size_t room = 0;
  int status = 0;
  while (getline(&line, &room, file) >= 0) {
    const char *flags = strchr(line, ':');
    if (flags == NULL || strncmp(line, FLAGS_KEY, strlen(FLAGS_KEY)) != 0) continue;
    for (int place = 0; place < FEATURES; ++place) {
      if (has_flag(flags + 1, features[place].flag)) continue;
      set_error("this CPU lacks %s, which the kernels were compiled for", features[place].name);
      status = -1;
      break;
    }
    break;
  }
  free(line);
  fclose(file);
  return status;
}

/* Ask for AMX's tiles for all threads: arch_prctl(ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA). */
static int ask_for_tiles(void) {
#if TILES
  if (syscall(158, 0x1023, 18) != 0) {
    set_error("the kernels need AMX, and the system refuses arch_prctl");
    return -1;
  }
#endif
  return 0;
}

/* A whole file, on huge pages, of which the processor's page tables reach more. */
static char *read_weights(const char *path, int64_t *size) {
  FILE *file = fopen(path, "rb");
  if (file == NULL || fseek(file, 0, SEEK_END) != 0 || (*size = ftell(file)) < 16) {
    set_error("the weights %s cannot be read", path);
    if (file != NULL) fclose(file);
    return NULL;
  }
  rewind(file);
  void *room = NULL;
  if (posix_memalign(&room, HUGE_PAGE, (size_t)*size) != 0) {
    set_error("there is not enough memory for the weights");
    fclose(file);
    return NULL;
  }
#if defined(__linux__)
  madvise(room, (size_t)*size, MADV_HUGEPAGE);
#endif
  size_t found = fread(room, 1, (size_t)*size, file);
  fclose(file);
  int64_t count = ((int64_t *)room)[0];
  int whole = found == (size_t)*size && count >= 0 && count <= *size / 8 - 2;
  if (!whole || ((int64_t *)room)[1 + count] != *size || *size != WEIGHTS_SIZE) {
    set_error("%s does not hold the weights of this bundle", path);
    free(room);
    return NULL;
  }
  return room;
}

static int open_network(struct HANDLE *made, int64_t size) {
  int64_t count = ((int64_t *)made->weights)[0], one = 1;
  struct owned bytes = {.tensor = {.data = made->weights, .ndim = 1, .dtype = {kDLUInt, 8, 1}}};
  struct owned starts = {.tensor = {.data = made->weights + 8, .ndim = 1, .dtype = {kDLInt, 64, 1}}};
  bytes.tensor.device = starts.tensor.device = (DLDevice){kDLCPU, 0};
  bytes.tensor.shape = &size;
  starts.tensor.shape = &count;
  bytes.tensor.strides = starts.tensor.strides = &one;
  TVMFFIAny arguments[2] = {{.type_index = kTVMFFITensor}, {.type_index = kTVMFFITensor}};
  arguments[0].v_obj = (TVMFFIObject *)&bytes;
  arguments[1].v_obj = (TVMFFIObject *)&starts;
  TVMFFIAny result = {.type_index = kTVMFFINone};
  if (__tvm_ffi_network_open(NULL, arguments, 2, &result) != 0) return -1;
  made->network = (struct function *)result.v_obj;
  return 0;
}

API(int, input_count)(void) { return INPUTS; }

API(int, output_count)(void) { return OUTPUTS; }

API(const TENSOR *, input)(int number) {
  return number < 0 || number >= INPUTS ? NULL : &described[number];
}

API(const TENSOR *, output)(int number) {
  return number < 0 || number >= OUTPUTS ? NULL : &described[INPUTS + number];
}

API(const char *, error)(void) { return error; }

API(void, destroy)(struct HANDLE *handle) {
  if (handle == NULL) return;
  if (handle->network != NULL) handle->network->close(handle->network->self);
  free(handle->network);
  pool_destroy(handle->pool);
  workspaces_free(&handle->workspaces);
  free(handle->weights);
  free(handle);
}

API(struct HANDLE *, create)(const char *weights, int threads) {
  error[0] = '\0';
  if (check_processor() != 0 || ask_for_tiles() != 0) return NULL;
  if (threads < 0 || threads > MOST_THREADS) {
    set_error("a handle has 1 to %d threads, or 0 for as many as the kernels were measured with",
              MOST_THREADS);
    return NULL;
  }
  struct HANDLE *made = calloc(1, sizeof(*made));
  int64_t size = 0;
  if (made == NULL) {
    set_error("there is not enough memory");
    return NULL;
  }
  if ((made->weights = read_weights(weights, &size)) == NULL || open_network(made, size) != 0) {
    API_NAME(destroy)(made);
    return NULL;
  }
  made->pool = pool_create(threads == 0 ? THREADS : threads);
  if (made->pool == NULL) {
    set_error("the threads cannot be started");
    API_NAME(destroy)(made);
    return NULL;
  }
  return made;
}

API(int, run)(struct HANDLE *handle, const void *const *inputs, void *const *outputs) {
  DLTensor tensors[GIVEN];
  TVMFFIAny arguments[GIVEN];
  error[0] = '\0';
  for (int number = 0; number < GIVEN; ++number) {
    const void *data = number < INPUTS ? inputs[number] : outputs[number - INPUTS];
    const TENSOR *known = &described[number];
    if (data == NULL) {
      set_error("%s is NULL", known->name);
      return -1;
    }
    tensors[number] = (DLTensor){.data = (void *)data, .device = {kDLCPU, 0}, .ndim = known->rank};
    tensors[number].dtype = types[number];
    tensors[number].shape = (int64_t *)known->shape;
    arguments[number] = (TVMFFIAny){.type_index = kTVMFFIDLTensorPtr};
    arguments[number].v_ptr = &tensors[number];
  }
  if (atomic_exchange(&handle->running, 1)) {
    set_error("this handle runs in another thread; make one for each thread");
    return -1;
  }
  use(handle->pool, &handle->workspaces);
  TVMFFIAny nothing = {.type_index = kTVMFFINone};
  int status = handle->network->call(handle->network->self, arguments, GIVEN, &nothing);
  use(NULL, NULL);
  atomic_store(&handle->running, 0);
  return status;
}
