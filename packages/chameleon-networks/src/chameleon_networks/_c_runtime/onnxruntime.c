/* An execution provider of ONNX Runtime that runs delivered networks.
 *
 * A network is a node `EPContext`, whose text is "chameleon 1" and a line for each library that may
 * run it, the best first: the library, its CRC-32, the file of weights, the number of constants, and
 * the number of each in that file. Functions of the libraries are those that header.h describes.
 *
 * If calls have sizes, the first line is "chameleon 2", and an input and its axis for each size.
 */

#define _GNU_SOURCE
#include "onnxruntime.h"

#include <dlfcn.h>
#include <errno.h>
#include <libgen.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "crc32.h"

#define NAME "ChameleonExecutionProvider"
#define OPTION "ep.chameleonexecutionprovider." /* ONNX Runtime adds it to the name of an option */
#define LONGEST 1024 /* bytes of a message or path of the text */
#define MOST_AXES 64
#define VISIBLE __attribute__((visibility("default")))
#define TRY(call)                      \
  do {                                 \
    status *failed_ = (call);          \
    if (failed_ != NULL) return failed_; \
  } while (0)

/* ONNX Runtime passes each function more than most need. */
#pragma GCC diagnostic ignored "-Wunused-parameter"

#define DECLARED(place, result, name, arguments) static result(*name) arguments;
FUNCTIONS(DECLARED)

static const char *const dtypes[] = {"",      "float32", "uint8",   "int8",    "uint16", "int16",
                                     "int32", "int64",   "",        "bool",    "float16", "float64",
                                     "uint32", "uint64", "",        "",        "bfloat16"};

struct tensor {
  const char *name, *dtype;
  int rank;
  const int64_t *shape;
  size_t bytes;
};

struct network {
  struct computation base;
  void *library, *handle;
  void *input, *output, *run; /* functions, which take the sizes of a call if it has some */
  const char *(*error)(void);
  void (*destroy)(void *);
  int inputs, outputs;
  int *places; /* of inputs and then outputs among those of the node; -1 if nobody reads an output */
  int sizes;   /* of a call */
  struct {
    int input, axis;
  } sized[MOST_AXES];
};

struct provider {
  struct provider_base base;
  const struct logger *logger;
  int threads, instances;
  char *folder; /* of the files; empty for that of the ONNX file */
};

__attribute__((format(printf, 2, 3))) static status *problem(int code, const char *format, ...) {
  char message[LONGEST + PATH_MAX];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(message, sizeof message, format, arguments);
  va_end(arguments);
  return create_status(code, message);
}

/* Running a network. */

/* An input of a call. */
struct given {
  const struct value *value;
  int type;
  size_t rank;
  int64_t extents[MOST_AXES];
};

static status *look_at(const struct network *network, int number, struct context *context,
                       struct given *given) {
  struct info *info = NULL;
  TRY(given_input(context, (size_t)network->places[number], &given->value));
  if (given->value == NULL) return problem(INVALID_ARGUMENT, "input %d is missing", number);
  TRY(tensor_info(given->value, &info));
  status *failed = tensor_type(info, &given->type);
  if (failed == NULL) failed = tensor_rank(info, &given->rank);
  if (failed == NULL && given->rank <= MOST_AXES) {
    failed = tensor_extents(info, given->extents, given->rank);
  }
  release_info(info);
  return failed;
}

/* An input or output of the network in a call of some sizes; NULL if it takes no such sizes. */
static const struct tensor *described(const struct network *network, void *function, int number,
                                      const int64_t *sizes) {
  if (network->sizes == 0) return ((const struct tensor *(*)(int))function)(number);
  return ((const struct tensor *(*)(int, const int64_t *))function)(number, sizes);
}

static status *read_input(const struct network *network, int number, const struct given *given,
                          const int64_t *sizes, const void **data) {
  const struct tensor *wanted = described(network, network->input, number, sizes);
  if (wanted == NULL) return problem(INVALID_ARGUMENT, "%s", network->error());
  size_t rank = given->rank;
  if (rank != (size_t)wanted->rank || rank > MOST_AXES ||
      memcmp(given->extents, wanted->shape, rank * sizeof *sizes) != 0 || given->type < 0 ||
      (size_t)given->type >= sizeof dtypes / sizeof *dtypes ||
      strcmp(dtypes[given->type], wanted->dtype) != 0) {
    return problem(INVALID_ARGUMENT, "input %s has another dtype or shape than the network takes",
                   wanted->name);
  }
  return tensor_data(given->value, (void **)data);
}

static status *place_output(const struct network *network, int number, struct context *context,
                            const int64_t *sizes, void **data, void **spare) {
  const struct tensor *made = described(network, network->output, number, sizes);
  if (made == NULL) return problem(INVALID_ARGUMENT, "%s", network->error());
  int place = network->places[network->inputs + number];
  if (place < 0) {
    *data = *spare = malloc(made->bytes + 1);
    return *data == NULL ? problem(FAIL, "there is not enough memory") : NULL;
  }
  struct value *value = NULL;
  TRY(made_output(context, (size_t)place, made->shape, (size_t)made->rank, &value));
  return tensor_data(value, data);
}

static int run(const struct network *network, const void *const *inputs, void *const *outputs,
               const int64_t *sizes) {
  typedef int fixed(void *, const void *const *, void *const *);
  typedef int sized(void *, const void *const *, void *const *, const int64_t *);
  if (network->sizes == 0) return ((fixed *)network->run)(network->handle, inputs, outputs);
  return ((sized *)network->run)(network->handle, inputs, outputs, sizes);
}

static status *compute(struct computation *own, void *state, struct context *context) {
  static char nothing; /* the place of an empty tensor */
  struct network *network = (struct network *)own;
  const void *inputs[network->inputs + 1];
  void *outputs[network->outputs + 1], *spare[network->outputs + 1];
  struct given given[network->inputs + 1];
  int64_t sizes[network->sizes + 1];
  status *failed = NULL;
  memset(spare, 0, sizeof spare);
  for (int number = 0; number < network->inputs; ++number) {
    TRY(look_at(network, number, context, &given[number]));
  }
  for (int number = 0; number < network->sizes; ++number) {
    const struct given *own_input = &given[network->sized[number].input];
    size_t axis = (size_t)network->sized[number].axis;
    sizes[number] = axis < own_input->rank ? own_input->extents[axis] : 0;
  }
  for (int number = 0; number < network->inputs && failed == NULL; ++number) {
    failed = read_input(network, number, &given[number], sizes, &inputs[number]);
    if (failed == NULL && inputs[number] == NULL) inputs[number] = &nothing;
  }
  for (int number = 0; number < network->outputs && failed == NULL; ++number) {
    failed = place_output(network, number, context, sizes, &outputs[number], &spare[number]);
    if (failed == NULL && outputs[number] == NULL) outputs[number] = &nothing;
  }
  if (failed == NULL && run(network, inputs, outputs, sizes) != 0) {
    failed = problem(EP_FAIL, "%s", network->error());
  }
  for (int number = 0; number < network->outputs; ++number) free(spare[number]);
  return failed;
}

static status *create_state(struct computation *own, void *context, void **state) {
  *state = NULL;
  return NULL;
}

static void release_state(struct computation *own, void *state) {}

/* Opening a network. */

static void close_network(struct network *network) {
  if (network == NULL) return;
  if (network->handle != NULL) network->destroy(network->handle);
  if (network->library != NULL) dlclose(network->library);
  free(network->places);
  free(network);
}

static status *check_file(const char *path, unsigned wanted) {
  char bytes[1 << 16];
  uint32_t sum = 0;
  FILE *file = fopen(path, "rbe");
  if (file == NULL) return problem(EP_FAIL, "%s cannot be read: %s", path, strerror(errno));
  for (size_t size; (size = fread(bytes, 1, sizeof bytes, file)) > 0;) sum = crc32(sum, bytes, size);
  fclose(file);
  if (sum == wanted) return NULL;
  return problem(EP_FAIL, "%s is not the library that the ONNX file was written with; export the "
                          "network again", path);
}

/* Load a library, even if another one was loaded from a file that it replaced: the system knows a
 * library by its path, so each file gets a path of its own. */
static status *load(struct network *network, const char *folder, const char *name, unsigned sum) {
  char path[PATH_MAX + LONGEST];
  struct stat about;
  snprintf(path, sizeof path, "%s/%s", folder, name);
  TRY(check_file(path, sum));
  if (stat(path, &about) != 0) return problem(EP_FAIL, "%s: %s", path, strerror(errno));
  size_t end = strlen(folder);
  for (ino_t bits = about.st_ino; bits != 0 && end + 3 < PATH_MAX; bits >>= 1) {
    end += (size_t)sprintf(path + end, bits & 1 ? "/." : "/");
  }
  snprintf(path + end, sizeof path - end, "/%s", name);
  network->library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  return network->library == NULL ? problem(EP_FAIL, "%s", dlerror()) : NULL;
}

#define FIND(function, name) \
  if ((*(void **)&(function) = dlsym(network->library, "network_" name)) == NULL) return missing()

static status *missing(void) { return problem(EP_FAIL, "%s", dlerror()); }

/* Open a network with a library, whose constants `numbers` lists; `refusal` says why it cannot run. */
static status *open_library(struct network *network, const struct provider *provider,
                            const char *weights, int constants, char *numbers, char *refusal) {
  const char *(*refused)(void);
  int (*counted[3])(void);
  void *opened;
  FIND(refused, "refusal");
  FIND(counted[0], "input_count");
  FIND(counted[1], "output_count");
  if (constants >= 0) FIND(counted[2], "constant_count");
  FIND(opened, "open");
  FIND(network->input, "input");
  FIND(network->output, "output");
  FIND(network->run, "run");
  FIND(network->error, "error");
  FIND(network->destroy, "destroy");
  const char *reason = refused();
  if (reason != NULL) {
    snprintf(refusal, LONGEST, "%s", reason);
    return NULL;
  }
  if (counted[0]() != network->inputs || counted[1]() != network->outputs ||
      (constants >= 0 && counted[2]() != constants)) {
    return problem(EP_FAIL, "the node has other inputs or outputs than its network");
  }
  int *chosen = calloc((size_t)(constants > 0 ? constants : 0) + 1, sizeof *chosen);
  if (chosen == NULL) return problem(FAIL, "there is not enough memory");
  for (int number = 0; number < constants; ++number) {
    chosen[number] = (int)strtol(numbers, &numbers, 10);
  }
  if (network->sizes == 0) {
    void *(*fixed)(const char *, int, int, const int *) = opened;
    network->handle =
        fixed(weights, provider->threads, provider->instances, constants < 0 ? NULL : chosen);
  } else {
    void *(*sized)(const char *, int, int) = opened;
    network->handle = sized(weights, provider->threads, provider->instances);
  }
  free(chosen);
  return network->handle == NULL ? problem(EP_FAIL, "%s", network->error()) : NULL;
}

/* Log what a library tells about its weights; those of earlier versions tell nothing. */
static status *report_packing(const struct network *network, const struct provider *provider,
                              const char *library) {
  const char *(*reported)(void *);
  *(void **)&reported = dlsym(network->library, "network_report");
  const char *report = reported == NULL ? "" : reported(network->handle);
  char said[PATH_MAX + 2 * LONGEST];
  snprintf(said, sizeof said, "%s: %s", library, report);
  if (report[0] == '\0') return NULL;
  return log_message(provider->logger, WARNING, said, __FILE__, __LINE__, __func__);
}

/* Open a network with the first library of its text that runs on this machine. */
static status *open_network(struct network *network, const struct provider *provider,
                            const char *folder, char *text) {
  char refusal[LONGEST] = "", *rest = NULL;
  int version = 0, start = 0, used = 0;
  if (sscanf(text, "chameleon %d%n", &version, &start) != 1 || version < 1 || version > 2) {
    return problem(EP_FAIL, "another version of Chameleon wrote this ONNX file than the registered "
                            "provider; export both again");
  }
  text += start;
  for (int input, axis; text[0] == ' '; text += used) {
    if (sscanf(text, " %d %d%n", &input, &axis, &used) != 2 || network->sizes == MOST_AXES ||
        input < 0 || input >= network->inputs || axis < 0) {
      return problem(EP_FAIL, "the ONNX file is damaged");
    }
    network->sized[network->sizes].input = input;
    network->sized[network->sizes++].axis = axis;
  }
  for (char *line = strtok_r(text, "\n", &rest); line != NULL;
       line = strtok_r(NULL, "\n", &rest)) {
    char library[256], weights[256], path[PATH_MAX + LONGEST];
    unsigned sum;
    int constants, end = 0;
    if (sscanf(line, "%255s %x %255s %d%n", library, &sum, weights, &constants, &end) != 4 ||
        strstr(library, "..") != NULL || strstr(weights, "..") != NULL) {
      return problem(EP_FAIL, "the ONNX file is damaged");
    }
    TRY(load(network, folder, library, sum));
    snprintf(path, sizeof path, "%s/%s", folder, weights);
    TRY(open_library(network, provider, path, constants, line + end, refusal));
    if (network->handle != NULL && refusal[0] != '\0') {
      char said[2 * LONGEST];
      snprintf(said, sizeof said, "%s runs, because %s", library, refusal);
      TRY(log_message(provider->logger, WARNING, said, __FILE__, __LINE__, __func__));
    }
    if (network->handle != NULL) return report_packing(network, provider, library);
    dlclose(network->library);
    network->library = NULL;
  }
  return problem(EP_FAIL, "no library of the network runs here: %s", refusal);
}

/* Nodes of a graph. */

/* A text of a node, which the caller frees; empty if the node has none. */
static status *text_of(const struct node *node, const char *name, char **text) {
  const struct attribute *attribute = NULL;
  size_t size = 1;
  status *ignored = find_attribute(node, name, &attribute);
  if (ignored == NULL && attribute != NULL) {
    ignored = read_attribute(attribute, TEXT_ATTRIBUTE, NULL, 0, &size); /* tells the size */
  }
  if (ignored != NULL) release_status(ignored);
  if ((*text = calloc(size + 1, 1)) == NULL) return problem(FAIL, "there is not enough memory");
  if (attribute == NULL) return NULL;
  return read_attribute(attribute, TEXT_ATTRIBUTE, *text, size, &size);
}

static status *find_nodes(struct provider *own, const struct graph *graph,
                          struct support *support) {
  size_t count = 0;
  TRY(node_count(graph, &count));
  const struct node *nodes[count + 1];
  TRY(all_nodes(graph, nodes, count));
  for (size_t place = 0; place < count; ++place) {
    const char *name = NULL, *domain = NULL;
    char *source = NULL;
    TRY(node_operator(nodes[place], &name));
    TRY(node_domain(nodes[place], &domain));
    if (strcmp(name, "EPContext") != 0 || strcmp(domain, "com.microsoft") != 0) continue;
    status *failed = text_of(nodes[place], "source", &source);
    int is_own = failed == NULL && strcmp(source, NAME) == 0;
    free(source);
    if (failed != NULL) return failed;
    if (is_own) TRY(provider_functions()->fuse_nodes(support, &nodes[place], 1, NULL));
  }
  return NULL;
}

/* Find the places of a node's inputs, or outputs, among those of the node that replaces it. */
static status *find_places(const struct node *node, const struct node *fused,
                           status *(*count)(const struct node *, size_t *),
                           status *(*list)(const struct node *, const struct variable **, size_t),
                           int **places, int *found) {
  size_t wanted = 0, given = 0;
  TRY(count(node, &wanted));
  TRY(count(fused, &given));
  const struct variable *names[wanted + 1], *others[given + 1];
  TRY(list(node, names, wanted));
  TRY(list(fused, others, given));
  int *all = realloc(*places, (size_t)(*found + (int)wanted + 1) * sizeof *all);
  if (all == NULL) return problem(FAIL, "there is not enough memory");
  *places = all;
  for (size_t number = 0; number < wanted; ++number) {
    const char *name = "", *other = NULL;
    int *place = &all[(*found)++];
    *place = -1;
    if (names[number] != NULL) TRY(variable_name(names[number], &name));
    for (size_t at = 0; at < given && *place < 0; ++at) {
      if (others[at] != NULL) TRY(variable_name(others[at], &other));
      if (others[at] != NULL && strcmp(name, other) == 0) *place = (int)at;
    }
  }
  return NULL;
}

static status *compile_node(const struct provider *provider, const struct graph *graph,
                            const struct node *fused, struct network *network) {
  const struct node *node = NULL;
  const char *path = "";
  char *text = NULL;
  int found = 0;
  TRY(all_nodes(graph, &node, 1));
  TRY(find_places(node, fused, input_count, node_inputs, &network->places, &found));
  network->inputs = found;
  for (int number = 0; number < found; ++number) {
    if (network->places[number] < 0) return problem(EP_FAIL, "the node lacks an input");
  }
  TRY(find_places(node, fused, output_count, node_outputs, &network->places, &found));
  network->outputs = found - network->inputs;
  TRY(model_path(graph, &path));
  const char *folder = provider->folder;
  if (folder[0] == '\0') folder = dirname(strdupa(path));
  status *failed = text_of(node, "ep_cache_context", &text);
  if (failed == NULL) failed = open_network(network, provider, folder, text);
  free(text);
  return failed;
}

static void release_computations(struct provider *own, struct computation **made, size_t count) {
  for (size_t place = 0; place < count; ++place) close_network((struct network *)made[place]);
}

static status *compile(struct provider *own, const struct graph **graphs,
                       const struct node **fused, size_t count, struct computation **made,
                       void **nodes) {
  for (size_t place = 0; place < count; ++place) {
    struct network *network = calloc(1, sizeof *network);
    status *failed = NULL;
    if (network == NULL) {
      failed = problem(FAIL, "there is not enough memory");
    } else {
      network->base = (struct computation){API_VERSION, create_state, compute, release_state};
      failed = compile_node(own, graphs[place], fused[place], network);
    }
    made[place] = (struct computation *)network;
    if (failed == NULL) continue;
    release_computations(own, made, place + 1);
    memset(made, 0, count * sizeof *made);
    return failed;
  }
  return NULL;
}

/* The provider of a session, and the factory of all providers. */

static const char *provider_name(const struct provider *own) { return NAME; }

/* The text of a session's option, or of another one if the session has none; freed by the caller. */
static status *option_of(const struct options *options, const char *key, const char *otherwise,
                         char **text) {
  size_t size = 0;
  status *unknown = option_text(options, key, NULL, &size);
  if (unknown != NULL) release_status(unknown);
  if (unknown != NULL || size == 0) {
    *text = strdup(otherwise);
  } else if ((*text = calloc(size + 1, 1)) != NULL) {
    return option_text(options, key, *text, &size);
  }
  return *text == NULL ? problem(FAIL, "there is not enough memory") : NULL;
}

/* The number of a session's option; -1, which no network accepts, if the text is no number. */
static status *number_of(const struct options *options, const char *key, const char *otherwise,
                         int *number) {
  char *text = NULL, *end = NULL;
  TRY(option_of(options, key, otherwise, &text));
  *number = (int)strtol(text, &end, 10);
  if (*end != '\0' || end == text) *number = -1;
  free(text);
  return NULL;
}

static void release(struct factory *own, struct provider *provider) {
  free(provider->folder);
  free(provider);
}

static status *create(struct factory *own, const struct device *const *devices,
                      const struct pairs *const *metadata, size_t count,
                      const struct options *options, const struct logger *logger,
                      struct provider **made) {
  struct provider *provider = calloc(1, sizeof *provider);
  if (provider == NULL) return problem(FAIL, "there is not enough memory");
  provider->logger = logger;
  provider->base = (struct provider_base){.version = API_VERSION,
                                          .name = provider_name,
                                          .find_nodes = find_nodes,
                                          .compile = compile,
                                          .release_computations = release_computations};
  status *failed = number_of(options, OPTION "threads", "0", &provider->threads);
  if (failed == NULL) failed = number_of(options, OPTION "instances", "1", &provider->instances);
  if (failed == NULL) failed = option_of(options, OPTION "folder", "", &provider->folder);
  if (failed == NULL) *made = provider;
  else release(own, provider);
  return failed;
}

static const char *name(const struct factory *own) { return NAME; }

static const char *vendor(const struct factory *own) { return "Chameleon"; }

static const char *own_version(const struct factory *own) { return "1.0.0"; }

static uint32_t vendor_number(const struct factory *own) { return 0; }

static status *find_devices(struct factory *own, const struct device *const *devices, size_t count,
                            void **made, size_t most, size_t *made_count) {
  *made_count = 0;
  for (size_t place = 0; place < count && *made_count < most; ++place) {
    if (device_type(devices[place]) != CPU_DEVICE) continue;
    TRY(provider_functions()->create_device(own, devices[place], NULL, NULL,
                                            &made[(*made_count)++]));
  }
  return NULL;
}

static status *create_allocator(struct factory *own, const void *memory,
                                const struct pairs *options, void **made) {
  *made = NULL; /* that of the CPU */
  return NULL;
}

static void release_allocator(struct factory *own, void *allocator) {}

static status *create_transfer(struct factory *own, void **made) {
  *made = NULL;
  return NULL;
}

static bool has_streams(const struct factory *own) { return false; }

static struct factory factory = {.version = API_VERSION,
                                 .name = name,
                                 .vendor = vendor,
                                 .find_devices = find_devices,
                                 .create = create,
                                 .release = release,
                                 .vendor_number = vendor_number,
                                 .own_version = own_version,
                                 .create_allocator = create_allocator,
                                 .release_allocator = release_allocator,
                                 .create_transfer = create_transfer,
                                 .has_streams = has_streams};

VISIBLE status *CreateEpFactories(const char *registered, const struct api_base *base,
                                  const struct logger *logger, struct factory **factories,
                                  size_t most, size_t *count) {
  const void *const *functions = base->functions(API_VERSION);
  if (functions == NULL) {
    create_status = base->functions(1)[0];
    return problem(FAIL, "Chameleon's provider needs ONNX Runtime 1.23 or later, and this is %s",
                   base->version());
  }
#define ASSIGNED(place, result, name, arguments) name = functions[place];
  FUNCTIONS(ASSIGNED)
  factories[0] = &factory;
  *count = 1;
  return NULL;
}

VISIBLE status *ReleaseEpFactory(struct factory *own) { return NULL; }
