/* What a provider needs of ONNX Runtime's binary interface, which later versions only extend.
 *
 * The numbers are places in its tables of functions, and the structures are those that a provider
 * fills in, all as of version 1.23 (https://onnxruntime.ai/docs/execution-providers/plugin-ep-libraries).
 */

#ifndef CHAMELEON_ONNXRUNTIME_H
#define CHAMELEON_ONNXRUNTIME_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define API_VERSION 23

enum { FAIL = 1, INVALID_ARGUMENT = 2, EP_FAIL = 11 }; /* codes of errors */
enum { WARNING = 2 };                                  /* of a log */
enum { TEXT_ATTRIBUTE = 5 };
enum { CPU_DEVICE = 0 };

typedef struct status status; /* NULL is success */

struct attribute;
struct context;
struct device;
struct graph;
struct info;
struct logger;
struct node;
struct options;
struct pairs;
struct support;
struct value;
struct variable;

/* The functions of the main table that are called: place, result, name and arguments. */
#define FUNCTIONS(F)                                                                               \
  F(0, status *, create_status, (int code, const char *message))                                   \
  F(51, status *, tensor_data, (const struct value *value, void **data))                           \
  F(60, status *, tensor_type, (const struct info *info, int *type))                               \
  F(61, status *, tensor_rank, (const struct info *info, size_t *rank))                            \
  F(62, status *, tensor_extents, (const struct info *info, int64_t *extents, size_t rank))        \
  F(65, status *, tensor_info, (const struct value *value, struct info **info))                    \
  F(90, status *, given_input,                                                                     \
    (const struct context *context, size_t place, const struct value **value))                     \
  F(91, status *, made_output,                                                                     \
    (struct context *context, size_t place, const int64_t *extents, size_t rank,                   \
     struct value **value))                                                                        \
  F(93, void, release_status, (status *status))                                                    \
  F(99, void, release_info, (struct info *info))                                                   \
  F(238, status *, option_text,                                                                    \
    (const struct options *options, const char *key, char *text, size_t *size))                    \
  F(247, status *, log_message,                                                                    \
    (const struct logger *logger, int severity, const char *message, const char *file, int line,   \
     const char *function))                                                                        \
  F(272, status *, read_attribute,                                                                 \
    (const struct attribute *attribute, int type, void *data, size_t size, size_t *needed))        \
  F(289, status *, variable_name, (const struct variable *variable, const char **name))            \
  F(307, int, device_type, (const struct device *device))                                          \
  F(317, const provider_table *, provider_functions, (void))                                       \
  F(334, status *, model_path, (const struct graph *graph, const char **path))                     \
  F(344, status *, node_count, (const struct graph *graph, size_t *count))                         \
  F(345, status *, all_nodes, (const struct graph *graph, const struct node **nodes, size_t count)) \
  F(350, status *, node_operator, (const struct node *node, const char **name))                    \
  F(351, status *, node_domain, (const struct node *node, const char **name))                      \
  F(353, status *, input_count, (const struct node *node, size_t *count))                          \
  F(354, status *, node_inputs,                                                                    \
    (const struct node *node, const struct variable **inputs, size_t count))                       \
  F(355, status *, output_count, (const struct node *node, size_t *count))                         \
  F(356, status *, node_outputs,                                                                   \
    (const struct node *node, const struct variable **outputs, size_t count))                      \
  F(361, status *, find_attribute,                                                                 \
    (const struct node *node, const char *name, const struct attribute **attribute))

struct factory;
struct provider;

/* The first functions for providers. */
typedef struct {
  status *(*create_device)(struct factory *factory, const struct device *device,
                           const struct pairs *metadata, const struct pairs *options, void **made);
  void (*release_device)(void *device);
  status *(*fuse_nodes)(struct support *support, const struct node *const *nodes, size_t count,
                        const void *options);
} provider_table;

struct api_base {
  const void *const *(*functions)(uint32_t version); /* NULL if the version is not known */
  const char *(*version)(void);
};

/* Of one node that a provider computes. */
struct computation {
  uint32_t version;
  status *(*create_state)(struct computation *own, void *context, void **state);
  status *(*compute)(struct computation *own, void *state, struct context *context);
  void (*release_state)(struct computation *own, void *state);
};

/* Of one session. Functions that a provider lacks are NULL. */
struct provider_base {
  uint32_t version;
  const char *(*name)(const struct provider *own);
  status *(*find_nodes)(struct provider *own, const struct graph *graph, struct support *support);
  status *(*compile)(struct provider *own, const struct graph **graphs, const struct node **fused,
                     size_t count, struct computation **made, void **nodes);
  void (*release_computations)(struct provider *own, struct computation **made, size_t count);
  void *others[8];
};

struct factory {
  uint32_t version;
  const char *(*name)(const struct factory *own);
  const char *(*vendor)(const struct factory *own);
  status *(*find_devices)(struct factory *own, const struct device *const *devices, size_t count,
                          void **made, size_t most, size_t *made_count);
  status *(*create)(struct factory *own, const struct device *const *devices,
                    const struct pairs *const *metadata, size_t count,
                    const struct options *options, const struct logger *logger,
                    struct provider **made);
  void (*release)(struct factory *own, struct provider *provider);
  uint32_t (*vendor_number)(const struct factory *own);
  const char *(*own_version)(const struct factory *own);
  void *validate;
  status *(*create_allocator)(struct factory *own, const void *memory, const struct pairs *options,
                              void **made);
  void (*release_allocator)(struct factory *own, void *allocator);
  status *(*create_transfer)(struct factory *own, void **made);
  bool (*has_streams)(const struct factory *own);
  void *create_stream;
};

#endif
