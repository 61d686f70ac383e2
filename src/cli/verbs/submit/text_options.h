#pragma once

#include <array>
#include <iterator>
#include <string>
#include <string_view>

#include "client/json.h"

/// Fields of a job that are texts and are passed on as they are given: a row each.
namespace gpusched::cli {

struct TextOption {
  std::string_view flag;   ///< Flag of gpu-cli submit.
  std::string_view value;  ///< Name of the value in the help.
  std::string_view field;  ///< Field name in requests and in job records.
  std::string_view help;
  std::string_view label = {};        ///< Label in gpu-cli get; empty: not shown there.
  std::string_view update_help = {};  ///< Help text in gpu-cli update; empty: cannot be changed.
};

inline constexpr TextOption kTextOptions[] = {
    {.flag = "--reservation",
     .value = "NAME",
     .field = "reservation",
     .help = "Run on the nodes of this reservation while it is active; gpu-cli reservation list shows "
             "reservations"},
    {.flag = "--comment",
     .value = "TEXT",
     .field = "comment",
     .help = "Free text, shown by get",
     .label = "Comment",
     .update_help = "Free text, shown by get"},
};

/// Their values, in the order of the rows; empty: not given.
using TextValues = std::array<std::string, std::size(kTextOptions)>;

inline void add_texts(const TextValues& values, JsonObjectWriter& body) {
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (!values[i].empty()) body.add(kTextOptions[i].field, values[i]);
  }
}

}  // namespace gpusched::cli
