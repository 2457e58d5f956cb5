#include "apps/bench_script.h"

#include <fmt/format.h>

namespace lily::apps::script {
namespace {

json::Object text_property(const char* description) {
  return {{"type", "string"}, {"description", description}};
}

json::Object tool(const char* name, const char* description, json::Object properties, json::Array required) {
  return {{"type", "function"},
          {"function",
           {{"name", name},
            {"description", description},
            {"parameters",
             {{"type", "object"}, {"properties", std::move(properties)}, {"required", std::move(required)}}}}}};
}

}  // namespace

const std::string_view kSystem =
    "You help the people of a small museum. Answer in one or two sentences, in plain words, and say so when you do not "
    "know. The museum is open from Tuesday to Sunday, from ten in the morning until six in the evening. A ticket costs "
    "eight euros, four for pupils and students, nothing for children under six. The cellar with the old printing press "
    "can be seen on guided tours only; they begin at eleven and at three and last forty minutes. Large bags go into "
    "the "
    "lockers beside the entrance. The cafe in the yard takes the last orders half an hour before closing time.";

const std::array<std::string_view, 10> kChatTurns{
    "Good morning! When do you open today? It is Thursday.",
    "There are two of us, and our daughter is nine years old. What will the tickets cost us?",
    "She is very interested in how books were made in former times. Is there something for her?",
    "How long does that tour take, and when does the next one begin if we come at half past one?",
    "We will have a rather big backpack with us. Can we take it along?",
    "My mother is seventy-eight and does not walk very well. Are there places to sit down?",
    "Could you also tell me whether we can have lunch there, or at least a coffee and some cake?",
    "Until what time can we order something there?",
    "Thank you. And if we do not manage to come today, which day of the week should we avoid?",
    "Very good. Please sum up in one sentence what I should remember."};

const std::string_view kTask =
    "Please find out which of the twelve objects in the catalogue, numbers 101 to 112, are due for a check this month, "
    "look each of them up, one after the other, and then give me the list.";

json::Array tools() {
  json::Array all;
  all.push_back(tool("get_object", "Looks up one object of the catalogue by its number.",
                     {{"number", text_property("number of the object, for example 104")}}, {"number"}));
  all.push_back(tool("search_catalogue", "Finds objects whose title or description holds the given words.",
                     {{"words", text_property("words to look for")},
                      {"limit", {{"type", "integer"}, {"description", "most results"}}}},
                     {"words"}));
  all.push_back(tool("book_check", "Books an appointment with the restorer for one object.",
                     {{"number", text_property("number of the object")}, {"day", text_property("date, YYYY-MM-DD")}},
                     {"number", "day"}));
  return all;
}

const std::vector<ToolStep>& tool_steps() {
  static const std::vector<ToolStep> steps = [] {
    constexpr std::array<const char*, 12> titles{
        "hand press of 1821", "case of wooden letters", "ink ball of leather", "lithographic stone",
        "bookbinder's awl",   "sheet of marbled paper", "copper plate",        "composing stick",
        "proof with red ink", "iron paper cutter",      "guild cup of pewter", "printer's apprentice letter"};
    std::vector<ToolStep> all;
    for (std::size_t i = 0; i < titles.size(); ++i) {
      const std::string number = std::to_string(101 + i);
      all.push_back({.call = {.name = "get_object", .arguments = {{"number", number}}},
                     .result = fmt::format("{{\"number\": \"{}\", \"title\": \"{}\", \"room\": {}, \"last_check\": "
                                           "\"2025-{:02}-14\", \"condition\": \"good, slight wear on one side\"}}",
                                           number, titles[i], 1 + i % 4, 1 + i)});
    }
    return all;
  }();
  return steps;
}

}  // namespace lily::apps::script
