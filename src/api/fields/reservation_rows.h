#pragma once

#include <optional>
#include <string>

#include "api/contract/errors.h"
#include "api/contract/reservations.h"
#include "api/fields/shown_row.h"
#include "gpusched/v1/scheduler.pb.h"

/// A reservation, a row a field: how it is asked for and shown in the native API's messages, in the OpenAPI
/// document and on the reference page. The jobs door has none.
namespace gpusched::api {

/// Checks everything.
Answer<ReservationRequest> read_reservation(const v1::Reservation& message);
void write_reservation(const ReservationView& reservation, v1::Reservation& out);

/// Words on the field of that number; nothing when it has no row.
std::optional<FieldWords> reservation_words(int number);
/// The text of docs/reference/reservation-fields.md.
std::string reservation_fields_markdown();

}  // namespace gpusched::api
