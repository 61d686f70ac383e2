#include <cstdio>
#include <memory>
#include <string>

#include "main/commands/admin_command.h"
#include "main/keys/order_key_files.h"
#include "main/own_certificate.h"

namespace gpusched {
namespace {

int report(const Result<Unit>& done, const char* next) {
  if (!done.ok()) {
    std::fprintf(stderr, "gpu-scheduler order-key: %s\n", done.error().message.c_str());
    return 1;
  }
  std::puts(next);
  return 0;
}

std::shared_ptr<std::string> declare_data_dir(Grammar& grammar) {
  auto data_dir = std::make_shared<std::string>("/var/lib/gpu-scheduler");
  grammar
      .option("--data-dir", "DIR", data_dir.get(),
              "The scheduler's data folder (default: /var/lib/gpu-scheduler)")
      .completes(Complete::kFolder);
  return data_dir;
}

ProgramAction define_rotate(Grammar& grammar) {
  const std::shared_ptr<std::string> data_dir = declare_data_dir(grammar);
  grammar.details(
      "Orders to nodes with certificates are signed with this key. While it changes, those nodes know both "
      "keys.");
  return [data_dir](const std::vector<std::string>&) {
    return report(begin_order_key_change(authority_folder(*data_dir)),
                  "the next key is there; restart the scheduler, which tells nodes of it, and when all are "
                  "back (gpu-cli nodes) run gpu-scheduler order-key finish");
  };
}

ProgramAction define_finish(Grammar& grammar) {
  const std::shared_ptr<std::string> data_dir = declare_data_dir(grammar);
  return [data_dir](const std::vector<std::string>&) {
    return report(finish_order_key_change(authority_folder(*data_dir)),
                  "the old key is gone; restart the scheduler: nodes then obey the new key alone");
  };
}

}  // namespace

std::vector<ProgramCommand> order_key_commands() {
  return {{.path = "order-key rotate",
           .summary = "Make the next key for orders to nodes, of which nodes are told after a restart",
           .define = define_rotate},
          {.path = "order-key finish",
           .summary = "Sign orders with the next key from the next restart on; the old one is gone",
           .define = define_finish}};
}

}  // namespace gpusched
