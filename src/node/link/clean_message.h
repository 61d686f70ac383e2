#pragma once

#include <google/protobuf/message.h>

namespace gpusched {

/// Replaces by '?' what is not UTF-8 in the texts of a message, those of its parts included; its fields of
/// bytes stay as they are. The scheduler cannot read a message with other text, and would end the stream at
/// each repetition. True: something was replaced.
bool clean_texts(google::protobuf::Message& message);

}  // namespace gpusched
