/* Calls a compiled function on the arrays in some files, and writes the last one back.
 *
 * Arguments: for each array its file and the bits of its elements.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <dlpack/dlpack.h>
#include <tvm/ffi/c_api.h>

int __tvm_ffi_main(void* self, const TVMFFIAny* arguments, int32_t count, TVMFFIAny* result);

enum { MOST = 8 };

int main(int count, char** words) {
  static DLTensor tensors[MOST];
  static int64_t extents[MOST];
  static int64_t strides[MOST];
  static TVMFFIAny arguments[MOST];
  int arrays = (count - 1) / 2;
  long bytes = 0;
  for (int place = 0; place < arrays; ++place) {
    FILE* file = fopen(words[1 + 2 * place], "rb");
    int bits = atoi(words[2 + 2 * place]);
    if (file == NULL) return 2;
    fseek(file, 0, SEEK_END);
    bytes = ftell(file);
    rewind(file);
    DLTensor* tensor = &tensors[place];
    tensor->data = aligned_alloc(64, (bytes + 63) / 64 * 64);
    if (fread(tensor->data, 1, bytes, file) != (size_t)bytes) return 3;
    fclose(file);
    extents[place] = bytes * 8 / bits;
    strides[place] = 1;
    tensor->device.device_type = kDLCPU;
    tensor->ndim = 1;
    tensor->shape = &extents[place];
    tensor->strides = &strides[place];
    arguments[place].type_index = kTVMFFIDLTensorPtr;
    arguments[place].v_ptr = tensor;
  }
  TVMFFIAny result;
  memset(&result, 0, sizeof result);
  int status = __tvm_ffi_main(NULL, arguments, arrays, &result);
  if (status != 0) return 4;
  FILE* file = fopen(words[count - 2], "wb");
  if (file == NULL) return 5;
  fwrite(tensors[arrays - 1].data, 1, bytes, file);
  return fclose(file);
}
