#include "machines/drivers/command_provider.h"

#include "base/limits.h"
#include "base/text.h"
#include "client/json.h"
#include "machines/drivers/program.h"
#include "ops/run_command.h"

namespace gpusched::machines {
namespace {

constexpr std::size_t kListedMax = 10'000;

ProviderAnswer failed(Fault fault, std::string message) {
  return {.fault = fault, .message = std::move(message)};
}

std::string shape_json(const provision::MachineShape& shape) {
  JsonObjectWriter json;
  json.add("cpu_milli", shape.cpu_milli);
  json.add("memory_mb", shape.memory_mb);
  json.add("gpu_count", int64_t{shape.gpus});
  json.add("gpu_model", shape.gpu_model);
  json.add("gpu_memory_mb", shape.gpu_memory_mb);
  return json.text();
}

std::string request_json(const char* operation, const provision::Pool& pool, const std::string& name,
                         const CommandProviderOptions& options) {
  JsonObjectWriter json;
  json.add("version", int64_t{1});
  json.add("operation", operation);
  json.add("owner", options.owner);
  json.add("pool", pool.name);
  if (!name.empty()) json.add("name", name);
  std::map<std::string, std::string> labels{{std::string(provision::kPoolLabel), pool.name}};
  for (const Label& label : pool.shape.labels) labels.emplace(label.name, label.value);
  json.add("labels", labels);
  json.add_json("shape", shape_json(pool.shape));
  json.add("settings", options.settings);
  return json.text() + "\n";
}

struct StateWord {
  std::string_view word;
  ProviderState state;
};
constexpr StateWord kStateWords[] = {{"absent", ProviderState::kAbsent},
                                     {"starting", ProviderState::kStarting},
                                     {"running", ProviderState::kRunning},
                                     {"ending", ProviderState::kEnding},
                                     {"failed", ProviderState::kFailed}};

ProviderAnswer parse_list(const Json& json) {
  ProviderAnswer answer;
  if (!json["machines"].is_array()) return failed(Fault::kUnavailable, "its answer has no list `machines`");
  for (const Json& each : json["machines"].items()) {
    const std::string name = each.text();
    if (name.empty() || name.size() > limits::kNameBytesMax || has_control_character(name))
      return failed(Fault::kUnavailable, "its list of machines has an entry that is no name");
    if (answer.machines.size() >= kListedMax)
      return failed(Fault::kUnavailable,
                    "its list has more than " + std::to_string(kListedMax) + " machines");
    answer.machines.push_back(name);
  }
  return answer;
}

}  // namespace

std::string_view to_string(Fault fault) {
  switch (fault) {
    case Fault::kQuota:
      return "quota";
    case Fault::kInvalid:
      return "invalid";
    case Fault::kUnavailable:
      return "unavailable";
  }
  return "unknown";
}

ProviderAnswer parse_provider_answer(const std::string& text, const std::string& name) {
  const Result<Json> parsed = Json::parse(text);
  if (!parsed.ok() || !parsed->is_object())
    return failed(Fault::kUnavailable, "its answer is not one JSON object: " + shown_text(text));
  const Json& json = *parsed;
  const std::string message = shown_text(json["message"].text());
  if (!json["error"].is_null()) {
    const std::string error = json["error"].text();
    const Fault fault = error == "quota"     ? Fault::kQuota
                        : error == "invalid" ? Fault::kInvalid
                                             : Fault::kUnavailable;
    return failed(fault, message.empty() ? "it answered with the error " + shown_text(error) : message);
  }
  if (name.empty()) return parse_list(json);
  if (!json["name"].is_null() && json["name"].text() != name)
    return failed(Fault::kUnavailable,
                  "it was asked about " + name + " and answered about " + shown_text(json["name"].text()));
  for (const StateWord& row : kStateWords) {
    if (json["state"].text() == row.word) return {.state = row.state, .message = message};
  }
  return failed(Fault::kUnavailable,
                "its answer has no `state` that is absent, starting, running, ending or failed");
}

ProviderAnswer CommandProvider::call(const char* operation, const provision::Pool& pool,
                                     const std::string& name) {
  const CommandResult ran = run_command(options_.command, program_environment(), options_.timeout, &stopping_,
                                        request_json(operation, pool, name, options_));
  const std::string program = options_.command.front();
  if (stopping_) return failed(Fault::kUnavailable, "the scheduler is stopping");
  if (ran.exit_code != 0) {
    return failed(Fault::kUnavailable,
                  program + " " + operation + ": " + program_failure(ran, options_.timeout));
  }
  ProviderAnswer answer = parse_provider_answer(ran.output, name);
  if (answer.fault == Fault::kUnavailable) answer.message = program + " " + operation + ": " + answer.message;
  return answer;
}

ProviderAnswer CommandProvider::create(const provision::Pool& pool, const std::string& name) {
  return call("create", pool, name);
}
ProviderAnswer CommandProvider::describe(const provision::Pool& pool, const std::string& name) {
  return call("describe", pool, name);
}
ProviderAnswer CommandProvider::destroy(const provision::Pool& pool, const std::string& name) {
  return call("destroy", pool, name);
}
ProviderAnswer CommandProvider::list(const provision::Pool& pool) { return call("list", pool, {}); }

}  // namespace gpusched::machines
