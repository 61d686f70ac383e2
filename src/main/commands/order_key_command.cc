#include <CLI/CLI.hpp>
#include <cstdio>
#include <string>

#include "main/commands/admin_command.h"
#include "main/keys/order_key_files.h"
#include "main/own_certificate.h"

namespace gpusched {

int run_order_key_command(int argc, char** argv) {
  std::string data_dir = "/var/lib/gpu-scheduler";
  CLI::App app(
      "Changes the key that the scheduler signs its orders to nodes with certificates with, while these know "
      "both",
      "gpu-scheduler order-key");
  app.require_subcommand(1);
  app.fallthrough();  // The commands take its options, too.
  const CLI::App& rotating =
      *app.add_subcommand("rotate", "make the next key, of which nodes are told after a restart");
  app.add_subcommand("finish", "sign with the next key from the next restart on; the old one is gone");
  app.add_option("--data-dir", data_dir, "the scheduler's data folder (default: /var/lib/gpu-scheduler)");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  }
  const std::string folder = authority_folder(data_dir);
  const bool begins = rotating.parsed();
  const Result<Unit> done = begins ? begin_order_key_change(folder) : finish_order_key_change(folder);
  if (!done.ok()) {
    std::fprintf(stderr, "gpu-scheduler order-key: %s\n", done.error().message.c_str());
    return 1;
  }
  std::puts(
      begins ? "the next key is there; restart the scheduler, which tells nodes of it, and when all are back "
               "(gpu-cli nodes) run gpu-scheduler order-key finish"
             : "the old key is gone; restart the scheduler: nodes then obey the new key alone");
  return 0;
}

}  // namespace gpusched
