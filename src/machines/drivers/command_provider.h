#pragma once

#include <map>
#include <string>
#include <vector>

#include "machines/drivers/provider.h"

namespace gpusched::machines {

struct CommandProviderOptions {
  std::vector<std::string> command;             ///< A program by its path, and its arguments.
  Duration timeout = seconds(120);              ///< For one run; then it is killed.
  std::string owner;                            ///< Label of all machines of this scheduler, at the provider.
  std::map<std::string, std::string> settings;  ///< Passed on unread, such as an image's name.
};

/// A provider behind an operator's program. Each call runs it once: a JSON object on its standard input, a
/// JSON object from its standard output, exit status 0 (docs/operate/autoscaling.md). Anything else is
/// Fault::kUnavailable with the reason: nothing is known then, and the call is repeated later.
class CommandProvider final : public Provider {
 public:
  explicit CommandProvider(CommandProviderOptions options) : options_(std::move(options)) {}

  ProviderAnswer create(const provision::Pool& pool, const std::string& name) override;
  ProviderAnswer describe(const provision::Pool& pool, const std::string& name) override;
  ProviderAnswer destroy(const provision::Pool& pool, const std::string& name) override;
  ProviderAnswer list(const provision::Pool& pool) override;

 private:
  /// `name`: empty for `list`.
  ProviderAnswer call(const char* operation, const provision::Pool& pool, const std::string& name);

  const CommandProviderOptions options_;
};

/// Reads the program's answer, which is untrusted, to a call for `name`; empty: to `list`.
ProviderAnswer parse_provider_answer(const std::string& text, const std::string& name);

}  // namespace gpusched::machines
