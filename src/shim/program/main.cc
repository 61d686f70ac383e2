// gpu-shim: the small program that owns jobs' processes. Started by gpu-agent, not by people.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "shim/container/container_init.h"
#include "shim/container/container_runner.h"
#include "shim/endpoint/endpoint_worker.h"
#include "shim/server.h"
#include "shim/sessions/session.h"

namespace {

/// The words behind the first two.
std::vector<std::string> words_of(int argc, char** argv) { return {argv + 2, argv + argc}; }

}  // namespace

int main(int argc, char** argv) {
  if (gpusched::shim::is_container_init(argc, argv)) return gpusched::shim::run_container_init(argc, argv);
  if (argc > 2 && argv[1] == gpusched::shim::kContainerFlag)
    return gpusched::shim::run_container(words_of(argc, argv));
  if (argc > 2 && argv[1] == gpusched::shim::kContainerEndFlag)
    return gpusched::shim::end_container(words_of(argc, argv));
  if (argc > 2 && std::strcmp(argv[1], gpusched::shim::kEndpointFlag) == 0)
    return gpusched::shim::run_endpoint_worker(words_of(argc, argv));
  if (argc == 2 && std::strcmp(argv[1], gpusched::shim::kSessionFlag) == 0)
    std::_Exit(gpusched::shim::run_session_keeper());
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
