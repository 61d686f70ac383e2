#pragma once

#include <array>
#include <string_view>

/// Text of the reference and manual pages besides that of the grammars.
namespace gpusched::cli {

struct NamedText {
  std::string_view name;
  std::string_view text;
};

inline constexpr std::array kExitCodeTexts = {
    NamedText{"0", "Success. With `submit --wait` and `wait`: the job completed."},
    NamedText{"1",
              "With `submit --wait` and `wait`: the job ended without an exit code of its own (cancelled, "
              "lost, could not be "
              "started)."},
    NamedText{"2", "Usage error in the command line. Nothing was sent."},
    NamedText{"3", "No scheduler answers at the URL."},
    NamedText{"4",
              "The scheduler refused the request: not found, quota, conflict, full disk. With `submit "
              "--now`: the job could not start at once."},
    NamedText{"5",
              "No usable answer: the connection broke, or the server is not a scheduler. The request may or "
              "may not have been carried out."},
    NamedText{"6", "Timed out: the time given by `--timeout` expired first."},
    NamedText{"7",
              "The output could not be written, for example to a full disk. The request may have been "
              "carried out."},
    NamedText{
        "8",
        "With `submit --wait`, `wait`, `run`, `attach` and `logs -f`: the job is held, and does not go on "
        "until somebody releases it."},
    NamedText{"124", "With `submit --wait` and `wait`: the job reached its time limit."},
    NamedText{"128 + N",
              "With `submit --wait` and `wait`: signal N ended the job. 130: Ctrl-C ended gpu-cli."},
    NamedText{"other",
              "With `submit --wait` and `wait`: the job's own exit code. It can equal one of the above; "
              "`--json` tells them apart."},
};

inline constexpr std::array kEnvironmentTexts = {
    NamedText{"GPU_SCHEDULER_URL", "URL of the scheduler's REST API, as `--api-url`."},
    NamedText{"GPU_SCHEDULER_TOKEN_FILE", "File with the shared token, as `--token-file`."},
    NamedText{"GPU_SCHEDULER_CA_FILE", "File with the certificates that https trusts, as `--ca-file`."},
    NamedText{"GPU_SCHEDULER_CONTEXT", "Name of a context, as `--context`."},
    NamedText{"NO_COLOR", "If not empty: no colours, as `--color never`."},
    NamedText{"XDG_CONFIG_HOME", "Folder that holds `gpu-scheduler/contexts.json`; `~/.config` if not set."},
};

}  // namespace gpusched::cli
