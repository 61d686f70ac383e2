#pragma once

#include <dlfcn.h>

#include <cstddef>
#include <cstdint>
#include <cstring>

/// Shared parts of all calls of NVML. Numbers and functions are NVIDIA's, from its "NVML API Reference
/// Guide"; NVML keeps them stable.
namespace gpusched::nvml {

constexpr int kSuccess = 0;
constexpr int kNotSupported = 3;
constexpr int kInsufficientSize = 7;
constexpr int64_t kBytesPerMb = 1 << 20;
/// Maximum processes of one device in one answer.
constexpr unsigned kProcessesMax = 4'096;

/// Looks the function up in the opened library; leaves null where the library has none of that name.
template <typename Function>
bool find(void* library, const char* name, Function& function) {
  void* const symbol = dlsym(library, name);
  std::memcpy(&function, &symbol, sizeof function);  // A function's address, by POSIX.
  return symbol != nullptr;
}

}  // namespace gpusched::nvml
