// Runs @name@ on inputs of files and writes its outputs, without Python:
//
//   @name@_example weights.bin @first_input@.npy ... [--runs N] [--threads N]
//
// The files of inputs come in their order, or as `@first_input@=FILE` with their names. Inputs are
// .npy files of the right shape and type, or raw bytes (any other ending); outputs are output0.npy,
// output1.npy, ... It prints the median latency of N runs, the shortest, and what 99 % of them took
// at most.

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iostream>
#include <iterator>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>

#include "@name@.h"

namespace {

const std::map<std::string, std::string> kDescriptions = {
    {"float32", "<f4"}, {"float64", "<f8"}, {"float16", "<f2"}, {"int8", "|i1"},
    {"uint8", "|u1"},   {"int16", "<i2"},   {"uint16", "<u2"},  {"int32", "<i4"},
    {"uint32", "<u4"},  {"int64", "<i8"},   {"uint64", "<u8"},  {"bool", "|b1"}};

const std::string kTaken = @taken@;
const std::vector<std::string> kInputs = {@input_names@};

@sized@
@name@_extents extents = {};  // found in the headers of .npy files

@end@
// What an input or output is.
const @name@_tensor &input(std::size_t number) {
  const @name@_tensor *tensor = @name@_input(static_cast<int>(number)@and_address@);
  if (tensor == nullptr) throw std::runtime_error(@name@_error());
  return *tensor;
}

const @name@_tensor &output(int number) { return *@name@_output(number@and_address@); }

std::string description_of(const @name@_tensor &tensor) {
  const auto found = kDescriptions.find(tensor.dtype);
  return found == kDescriptions.end() ? std::string("|V2") : found->second;
}

// The header of a .npy file of version 1.0 (numpy.lib.format).
std::string npy_header(const @name@_tensor &tensor) {
  std::string shape;
  for (int axis = 0; axis < tensor.rank; ++axis) shape += std::to_string(tensor.shape[axis]) + ", ";
  std::string told = "{'descr': '" + description_of(tensor) +
                     "', 'fortran_order': False, 'shape': (" + shape + "), }";
  while ((10 + told.size() + 1) % 64 != 0) told += ' ';
  told += '\n';
  std::string header("\x93NUMPY\x01\x00", 8);
  header += static_cast<char>(told.size() & 0xff);
  header += static_cast<char>(told.size() >> 8);
  return header + told;
}

bool ends_with(const std::string &text, const std::string &ending) {
  return text.size() >= ending.size() &&
         text.compare(text.size() - ending.size(), ending.size(), ending) == 0;
}

// The extents in the header of a .npy file.
std::vector<int64_t> shape_in(const std::string &header) {
  std::vector<int64_t> shape;
  const auto start = header.find('(');
  const auto end = header.find(')', start);
  if (start == std::string::npos || end == std::string::npos) return shape;
  const std::string inside = header.substr(start + 1, end - start - 1);
  for (std::size_t at = inside.find_first_of("0123456789"); at != std::string::npos;) {
    const auto after = inside.find_first_not_of("0123456789", at);
    shape.push_back(std::stoll(inside.substr(at, after - at)));
    at = after == std::string::npos ? after : inside.find_first_of("0123456789", after);
  }
  return shape;
}

// Bytes at a multiple of 64, as vectors of every width read them fastest; an empty tensor has a
// place as well.
class Bytes {
 public:
  explicit Bytes(std::size_t size) : lines_(size / sizeof(Line) + 1) {}
  char *data() { return lines_.front().bytes; }

 private:
  struct alignas(64) Line {
    char bytes[64];
  };
  std::vector<Line> lines_;
};

std::vector<char> content_of(const std::string &path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw std::runtime_error(path + " cannot be read");
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

// The header of a .npy file, which is removed from its bytes.
std::string take_header(const std::string &path, std::vector<char> &bytes) {
  if (bytes.size() < 12 || std::memcmp(bytes.data(), "\x93NUMPY", 6) != 0) {
    throw std::runtime_error(path + " is no .npy file");
  }
  const auto *raw = reinterpret_cast<const unsigned char *>(bytes.data());
  std::size_t start = 10, length = raw[8] | raw[9] << 8;
  if (raw[6] > 1) {
    start = 12;
    length |= static_cast<std::size_t>(raw[10]) << 16 | static_cast<std::size_t>(raw[11]) << 24;
  }
  if (start + length > bytes.size()) throw std::runtime_error(path + " is cut off");
  const std::string header(bytes.data() + start, length);
  bytes.erase(bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(start + length));
  return header;
}

@sized@
// The extent of an axis, which only a .npy file says.
int64_t extent_in(const std::string &path, std::size_t axis) {
  std::vector<char> bytes = content_of(path);
  const std::vector<int64_t> shape = shape_in(take_header(path, bytes));
  if (axis >= shape.size()) throw std::runtime_error(path + " has too few axes; " + kTaken);
  return shape[axis];
}

@end@
Bytes read(const std::string &path, const @name@_tensor &wanted) {
  std::vector<char> bytes = content_of(path);
  if (ends_with(path, ".npy")) {
    const std::string header = take_header(path, bytes);
    const std::vector<int64_t> shape(wanted.shape, wanted.shape + wanted.rank);
    if (header.find("'" + description_of(wanted) + "'") == std::string::npos ||
        header.find("'fortran_order': False") == std::string::npos || shape_in(header) != shape) {
      throw std::runtime_error(path + " has another shape, type or order than " + wanted.name);
    }
  }
  if (bytes.size() != wanted.bytes) {
    throw std::runtime_error(path + " holds " + std::to_string(bytes.size()) + " bytes, and " +
                             wanted.name + " has " + std::to_string(wanted.bytes));
  }
  Bytes made(bytes.size());
  std::copy(bytes.begin(), bytes.end(), made.data());
  return made;
}

// The file of each input, from words such as `file` and `name=file`.
std::vector<std::string> files_of_inputs(const std::vector<std::string> &words) {
  std::vector<std::string> files(kInputs.size());
  std::size_t place = 0;
  for (const std::string &word : words) {
    const auto equals = word.find('=');
    const std::string name = word.substr(0, equals == std::string::npos ? 0 : equals);
    const bool named = !name.empty() && name.find_first_of("./") == std::string::npos;
    std::size_t number = place;
    if (named) {
      const auto found = std::find(kInputs.begin(), kInputs.end(), name);
      if (found == kInputs.end()) {
        throw std::runtime_error("there is no input " + name + "; " + kTaken);
      }
      number = static_cast<std::size_t>(found - kInputs.begin());
    } else if (++place > files.size()) {
      throw std::runtime_error("there are too many inputs; " + kTaken);
    }
    if (!files[number].empty()) {
      throw std::runtime_error("input " + kInputs[number] + " is given twice; " + kTaken);
    }
    files[number] = named ? word.substr(equals + 1) : word;
  }
  for (std::size_t number = 0; number < files.size(); ++number) {
    if (!files[number].empty()) continue;
    throw std::runtime_error("input " + kInputs[number] + " is missing; " + kTaken);
  }
  return files;
}

int run(int count, char **words) {
  std::vector<std::string> files;
  int runs = 1, threads = 0;
  for (int place = 1; place < count; ++place) {
    const std::string word = words[place];
    if ((word == "--runs" || word == "--threads") && place + 1 < count) {
      (word == "--runs" ? runs : threads) = std::max(0, std::atoi(words[++place]));
    } else {
      files.push_back(word);
    }
  }
  if (files.empty()) {
    std::cerr << "usage: " << words[0] << " weights.bin";
    for (const std::string &name : kInputs) std::cerr << " " << name << ".npy";
    std::cerr << " [--runs N] [--threads N]\n";
    return 2;
  }
  const std::string weights = files.front();
  files = files_of_inputs({files.begin() + 1, files.end()});
  std::vector<Bytes> inputs, outputs;
  std::vector<const void *> given;
  std::vector<void *> made;
@sized@
@found_extents@
@end@
  for (std::size_t number = 0; number < files.size(); ++number) {
    inputs.push_back(read(files[number], input(number)));
    given.push_back(inputs.back().data());
  }
  for (int number = 0; number < @name@_output_count(); ++number) {
    outputs.emplace_back(output(number).bytes);
    made.push_back(outputs.back().data());
  }
  @name@_handle *handle = @name@_create(weights.c_str(), threads);
  if (handle == nullptr) throw std::runtime_error(@name@_error());
  std::vector<double> seconds;
  for (int turn = 0; turn <= runs; ++turn) {  // the first is not counted
    const auto started = std::chrono::steady_clock::now();
    const int status = @name@_run(handle, given.data(), made.data()@and_address@);
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - started;
    if (status != 0) {
      const std::string reason = @name@_error();
      @name@_destroy(handle);
      throw std::runtime_error(reason);
    }
    if (turn > 0) seconds.push_back(took.count());
  }
  @name@_destroy(handle);
  for (int number = 0; number < @name@_output_count(); ++number) {
    const std::string path = "output" + std::to_string(number) + ".npy";
    std::ofstream file(path, std::ios::binary);
    const std::string header = npy_header(output(number));
    file.write(header.data(), static_cast<std::streamsize>(header.size()));
    file.write(outputs[static_cast<std::size_t>(number)].data(),
               static_cast<std::streamsize>(output(number).bytes));
    if (!file) throw std::runtime_error(path + " cannot be written");
    std::cout << path << "\n";
  }
  if (!seconds.empty()) {
    std::sort(seconds.begin(), seconds.end());
    std::printf("latency %.9f s (median of %zu runs, the shortest %.9f s)\n",
                seconds[seconds.size() / 2], seconds.size(), seconds.front());
    std::printf("99 %% of the runs took %.9f s or less\n", seconds[seconds.size() * 99 / 100]);
  }
  return 0;
}

}  // namespace

int main(int count, char **words) {
  try {
    return run(count, words);
  } catch (const std::exception &problem) {
    std::cerr << problem.what() << "\n";
    return 1;
  }
}
