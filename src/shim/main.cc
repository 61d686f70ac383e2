// gpu-shim: the small program that owns jobs' processes. Started by gpu-agent, not by people.
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "shim/enter.h"
#include "shim/server.h"

int main(int argc, char** argv) {
  if (argc > 1 && std::strcmp(argv[1], gpusched::shim::kEnterFlag) == 0) {
    return gpusched::shim::run_enter({argv, argv + argc});
  }
  if (argc < 4 || std::strcmp(argv[1], gpusched::shim::kServerFlag) != 0) {
    std::fprintf(stderr, "gpu-shim is started by gpu-agent: gpu-shim --server INSTANCE DATA_DIR\n");
    return 2;
  }
  // The kernel lays the argument strings one behind the other.
  char* const end = argv[argc - 1] + std::strlen(argv[argc - 1]) + 1;
  // Without clean-up at exit: a leak checker's helper process would look like what a dead shim left.
  std::_Exit(gpusched::shim::run_server({.instance = argv[2],
                                         .data_folder = argv[3],
                                         .marker = argv[0],
                                         .marker_size = static_cast<std::size_t>(end - argv[0])}));
}
