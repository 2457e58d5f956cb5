// What every record of a measurement says about where it was made, and the figures that rows are made of.
#pragma once

#include <string>
#include <vector>

#include "base/error.h"
#include "base/json.h"

namespace lily::apps {

struct Spread {
  double median = 0, min = 0, max = 0;
};
Spread spread_of(std::vector<double> values);  // at least one
json::Object to_json(const Spread& spread);

// CPU, cores, memory, system and the load average now: a figure taken on a busy machine shows it.
json::Object machine_json();
std::string machine_line(const json::Object& machine);

// date, command, version, commit and build; the head of every record.
json::Object record_head(std::string_view schema, const std::string& command);

// Writes the record to the file, or to standard output for "-". Does nothing for an empty path.
Result<void> write_record(const json::Object& record, const std::string& path);

}  // namespace lily::apps
