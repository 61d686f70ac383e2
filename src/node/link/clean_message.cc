#include "node/link/clean_message.h"

#include <string>
#include <vector>

#include "base/utf8.h"

namespace gpusched {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;

namespace {

bool clean_text_field(Message& message, const FieldDescriptor* field) {
  const Reflection& reflection = *message.GetReflection();
  bool changed = false;
  std::string scratch;
  if (!field->is_repeated()) {
    const std::string& text = reflection.GetStringReference(message, field, &scratch);
    if (is_utf8(text)) return false;
    reflection.SetString(&message, field, utf8_cleaned(text));
    return true;
  }
  for (int i = 0; i < reflection.FieldSize(message, field); ++i) {
    const std::string& text = reflection.GetRepeatedStringReference(message, field, i, &scratch);
    if (is_utf8(text)) continue;
    reflection.SetRepeatedString(&message, field, i, utf8_cleaned(text));
    changed = true;
  }
  return changed;
}

}  // namespace

bool clean_texts(Message& message) {
  const Reflection& reflection = *message.GetReflection();
  std::vector<const FieldDescriptor*> fields;
  reflection.ListFields(message, &fields);
  bool changed = false;
  for (const FieldDescriptor* const field : fields) {
    if (field->type() == FieldDescriptor::TYPE_STRING) {
      changed |= clean_text_field(message, field);
    } else if (field->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE && field->is_repeated()) {
      for (int i = 0; i < reflection.FieldSize(message, field); ++i)
        changed |= clean_texts(*reflection.MutableRepeatedMessage(&message, field, i));
    } else if (field->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE) {
      changed |= clean_texts(*reflection.MutableMessage(&message, field));
    }
  }
  return changed;
}

}  // namespace gpusched
