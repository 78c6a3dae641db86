// The program: picks the command.
#include <malloc.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <exception>
#include <string>
#include <string_view>
#include <vector>

#include "app/commands.h"
#include "app/lost_pages.h"
#include "app/option_sources.h"
#include "app/serve_options.h"
#include "app/version.h"
#include "base/option_values.h"
#include "base/strings.h"

namespace staffel {
namespace {

struct Command {
  const char* name;
  const char* help;
  int (*run)(std::vector<std::string> args);
};

constexpr Command kCommands[] = {
    {"serve", "serve a model over HTTP (OpenAI routes)", RunServe},
    {"master", "serve models that workers compute, one or many of them", RunMaster},
    {"worker", "offer this machine to a master", RunWorker},
    {"inspect", "show what is in a model file", RunInspect},
    {"options", "list all options of serve, or write docs/configuration.md", RunOptions},
};

void PrintHelp() {
  std::printf("staffel %s: serves language models\n\nusage: staffel COMMAND [...]\n\n", Version());
  for (const Command& command : kCommands) {
    std::printf("  %-10s %s\n", command.name, command.help);
  }
  std::printf(
      "\n  --version  show the version and what was built in\n  --help     show this, or a "
      "command's "
      "help: staffel COMMAND --help\n");
}

int UnknownCommand(const std::string& name) {
  std::string nearest;
  int best = static_cast<int>(name.size()) / 2 + 1;
  for (const Command& command : kCommands) {
    const int distance = EditDistance(name, command.name);
    if (distance < best) best = distance, nearest = command.name;
  }
  return Fail(absl::InvalidArgumentError(
                  StrCat("unknown command '", name, "'; ",
                         nearest.empty() ? "`staffel --help` lists the commands"
                                         : StrCat("did you mean `staffel ", nearest, "`?"))),
              kExitUsage);
}

int Run(std::vector<std::string> args) {
  if (args.empty()) {
    PrintHelp();
    return kExitUsage;
  }
  const std::string name = args.front();
  args.erase(args.begin());
  if (name == "--help" || name == "-h" || name == "help") return PrintHelp(), kExitOk;
  if (name == "--version" || name == "-V" || name == "version") {
    std::fputs(VersionTable().c_str(), stdout);
    return kExitOk;
  }
  for (const Command& command : kCommands) {
    if (name == command.name) return command.run(std::move(args));
  }
  return UnknownCommand(name);
}

}  // namespace

int RunOptions(std::vector<std::string> args) {
  OptionList list;
  bool markdown = false;
  list.BeginGroup("Options");
  list.Switch("markdown", &markdown, "print docs/configuration.md");
  const char* const no_environment[] = {nullptr};
  const Result<bool> help = LoadOptions(list, "", std::move(args), no_environment);
  if (!help.ok()) return Fail(help.status(), kExitUsage);
  if (*help) {
    std::printf("usage: staffel options [--markdown]\n%s", list.Help().c_str());
  } else if (markdown) {
    std::fputs(ConfigurationMarkdown().c_str(), stdout);
  } else {
    ServeOptions options;
    std::fputs(ServeOptionList(&options).Help().c_str(), stdout);
  }
  return kExitOk;
}

}  // namespace staffel

int main(int argc, char** argv) {
  // A peer that goes away is an error of a write, not the end of the process.
  std::signal(SIGPIPE, SIG_IGN);
  staffel::ExplainLostPages();
  // Large buffers (a body of megabytes, its tokens) go back to the system when they are freed; by
  // default the first of them would raise this bound to 32 MB, and the heap would keep what
  // follows.
  mallopt(M_MMAP_THRESHOLD, 1 << 20);
  try {
    return staffel::Run({argv + 1, argv + argc});
  } catch (const std::exception& error) {
    std::fprintf(stderr, "staffel: %s\n", error.what());
    return staffel::kExitFailure;
  }
}
