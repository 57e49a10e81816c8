// `--html` and `--trace`: what people look at.
#include <fmt/format.h>

#include "partition_commands.h"
#include "partitioner/base/files.h"
#include "partitioner/page/page.h"
#include "partitioner/trace/step_trace.h"

namespace stagecraft {

void check_outputs(const ViewFiles& views, Inputs inputs) {
  check_output("--html", views.html, inputs);
  inputs.emplace_back("page", views.html);
  check_output("--trace", views.trace, inputs);
}

void write_views(const ViewFiles& views, const PageSources& sources,
                 const std::vector<std::string>& reasons) {
  if (!views.html.empty()) {
    Page page = make_page(sources);
    page.reasons.insert(page.reasons.begin(), reasons.begin(), reasons.end());
    write_file_atomically(views.html, to_html(page));
  }
  if (!views.trace.empty()) {
    std::vector<std::string> names;
    for (size_t r = 0; r < sources.plan.ranks.size(); ++r) {
      names.push_back(fmt::format("rank {}, {}", r, sources.plan.ranks[r].device));
    }
    const Trace trace = trace_of_step(sources.resolved.schedule, sources.step.actions, names);
    write_file_atomically(views.trace, to_json(trace));
  }
}

std::string written_text(const ViewFiles& views) {
  std::string text;
  if (!views.html.empty()) text += fmt::format("page: {}\n", views.html);
  if (!views.trace.empty()) text += fmt::format("trace: {} (ui.perfetto.dev)\n", views.trace);
  return text;
}

}  // namespace stagecraft
