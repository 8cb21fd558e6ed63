#include "cli/program.h"

#include <gmock/gmock.h>
#include <sys/wait.h>

#include <cstdio>
#include <nlohmann/json.hpp>

#include "base/error_testing.h"
#include "base/files.h"
#include "base/temp_dir.h"
#include "cli/help.h"
#include "cli/run_commands.h"
#include "train/options.h"

namespace chiron::cli {
namespace {

using testing::AllOf;
using testing::ContainsRegex;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

std::string error_of(const std::vector<std::string>& words) {
  auto table = commands();
  try {
    parse(table, words);
  } catch (const ConfigError& e) {
    return e.what();
  }
  return "no error";
}

struct Outcome {
  int code;
  std::string text;  ///< of both outputs
};

Outcome shell(const std::string& line) {
  std::FILE* pipe = ::popen((line + " 2>&1").c_str(), "r");
  CHECK(pipe);
  std::string text;
  for (int c; (c = std::fgetc(pipe)) != EOF;) text += static_cast<char>(c);
  int status = ::pclose(pipe);
  return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, text};
}

Outcome chiron(const std::string& words) { return shell(CHIRON_PROGRAM " " + words); }

TEST(CommandLine, TheListOfCommandsAndOptionsIsFrozen) {
  std::vector<std::string> lines;
  for (const Command& command : commands()) lines.push_back(command.synopsis());
  EXPECT_THAT(
      lines,
      ElementsAre("chiron train CONFIG [--set OPTION=VALUE]... [--out DIR] [--fresh]",
                  "chiron launch [--nproc N] [--nnodes M] [--node-rank R] [--rdzv HOST:PORT] [--hostfile FILE] "
                  "[--max-restarts K] -- COMMAND...",
                  "chiron plan CONFIG [--set OPTION=VALUE]... [--ops]", "chiron config COMMAND",
                  "chiron config show CONFIG [--set OPTION=VALUE]...",
                  "chiron config check CONFIG... [--set OPTION=VALUE]...", "chiron config schema [--format FORMAT]",
                  "chiron config init [FILE]",
                  "chiron prepare IN... --out DIR [--tokenizer byte|FILE] [--train-bpe N] [--validation FRACTION] "
                  "[--document-separator TEXT] [--shard-tokens N] [--overwrite]",
                  "chiron check MODEL --against FILE [--device DEVICE] [--tolerance X]",
                  "chiron generate MODEL [--prompt TEXT] [--prompt-ids IDS] [--max-tokens N] [--temperature X] "
                  "[--top-k K] [--top-p P] [--seed N] [--stop TEXT]... [--device DEVICE] [--threads N]",
                  "chiron eval MODEL --data DIR... [--batch-size N] [--seq-len N] [--device DEVICE] [--threads N]",
                  "chiron export RUN --to DIR", "chiron doctor [--selftest]",
                  "chiron bench [SUBJECT] [--config CONFIG] [--set OPTION=VALUE]... [--steps N] [--threads N] [--json]",
                  "chiron man"));
}

TEST(CommandLine, TheParserTakesWhatTheTableLists) {
  for (const Command& row : commands()) {
    if (!row.run) continue;
    std::vector<std::string> words;
    for (size_t space, begin = 0; begin != std::string::npos; begin = space == std::string::npos ? space : space + 1) {
      space = row.name.find(' ', begin);
      words.push_back(row.name.substr(begin, space - begin));
    }
    for (const Argument& a : row.arguments) {
      std::string allowed = a.option->allowed();
      std::string value = allowed.starts_with("one of ")    ? allowed.substr(7, allowed.find(',') - 7)
                          : allowed.starts_with("a string") ? "word"
                          : allowed.ends_with("< 1")        ? "0.5"
                                                            : "1";
      if (a.rest) words.emplace_back("--");
      if (a.kind != Argument::Kind::positional) words.push_back(a.spelling);
      if (a.kind != Argument::Kind::flag) words.push_back(value);
    }
    auto table = commands();
    Request request = parse(table, words);
    ASSERT_EQ(request.kind, Request::Kind::run) << row.name;
    EXPECT_EQ(request.command->name, row.name);
    for (const Argument& a : request.command->arguments) EXPECT_NE(a.option->place(), "") << row.name << a.spelling;
  }
}

TEST(CommandLine, HelpAndManNameWhatTheTableLists) {
  auto table = commands();
  std::string page = man_page(table);
  for (const Command& command : table) {
    std::string help = command_help(table, command);
    EXPECT_THAT(help, HasSubstr(command.summary));
    for (const Argument& a : command.arguments) {
      EXPECT_NE(help.find("  " + a.spelling) != std::string::npos, a.hidden) << command.name << " " << a.spelling;
      if (a.hidden) {
        EXPECT_EQ(page.find(a.spelling), std::string::npos);
      }
    }
    if (!command.hidden && command.name.find(' ') == std::string::npos) {
      EXPECT_THAT(program_help(table), HasSubstr("\n  " + command.name + " "));
    }
    if (!command.hidden && command.run) {
      EXPECT_THAT(page, HasSubstr(".SS chiron " + command.name + "\n"));
    }
  }
  EXPECT_EQ(page.find("chiron man"), std::string::npos) << "hidden";
}

TEST(CommandLine, ManPageIsAccepted) {
  if (shell("command -v mandoc").code != 0) GTEST_SKIP() << "mandoc is not installed";
  TempDir dir;
  std::string file = dir / "chiron.1";
  write_file(file, man_page(commands()));
  Outcome lint = shell("mandoc -T lint -W warning " + file);
  EXPECT_EQ(lint.code, 0) << lint.text;
  EXPECT_EQ(lint.text, "");
}

TEST(CommandLine, ArgumentsReachTheirStruct) {
  TrainArgs args;
  std::vector<Command> table;
  table.push_back(make_command<TrainArgs>("train", "x.", [&](const TrainArgs& a) {
    args = a;
    return ExitCode::done;
  }));
  Request request = parse(table, {"train", "a.yaml", "--set", "x=[1, 2]", "--fresh", "--set", "y=3", "--out=d"});
  EXPECT_EQ(request.command->run(), ExitCode::done);
  EXPECT_EQ(args.config, "a.yaml");
  EXPECT_THAT(args.sets, ElementsAre("x=[1, 2]", "y=3"));
  EXPECT_EQ(args.out, "d");
  EXPECT_TRUE(args.fresh);
  auto fresh = parse(table, {"train", "train"});
  fresh.command->run();
  EXPECT_EQ(args.config, "train") << "a command's name is a word like any other after the command";
}

TEST(CommandLine, WordsAfterDashesStayAsTheyAre) {
  LaunchArgs args;
  std::vector<Command> table;
  table.push_back(make_command<LaunchArgs>("launch", "x.", [&](const LaunchArgs& a) {
    args = a;
    return ExitCode::done;
  }));
  Request request = parse(table, {"launch", "--nproc", "2", "--", "train", "c.yaml", "--set", "a=[1, 2]", "--nproc"});
  EXPECT_EQ(request.command->run(), ExitCode::done);
  EXPECT_EQ(args.nproc, 2);
  EXPECT_THAT(args.command, ElementsAre("train", "c.yaml", "--set", "a=[1, 2]", "--nproc"));
  auto again = commands();
  EXPECT_THAT(message_of<ConfigError>([&] {
                parse(again, {"launch", "--nproc", "2"});
              }),
              HasSubstr("COMMAND is missing; usage: chiron launch"));
}

TEST(CommandLine, ValuesMayLookLikeOptions) {
  auto table = commands();
  Request request = parse(table, {"generate", "m", "--prompt", "--not an option", "--stop", "[x]"});
  for (const Argument& a : request.command->arguments) {
    if (a.spelling == "--prompt") {
      EXPECT_EQ(a.option->yaml(), "\"--not an option\"");
    }
    if (a.spelling == "--stop") {
      EXPECT_EQ(a.option->yaml(), "[\"[x]\"]");
    }
  }
}

TEST(CommandLine, ErrorsNameTheWordAndTheNearest) {
  EXPECT_THAT(error_of({"trian"}), HasSubstr("there is no command trian; did you mean train?"));
  EXPECT_THAT(error_of({"xyzzy"}), HasSubstr("The commands are train, launch, plan"));
  EXPECT_THAT(error_of({"config", "shwo"}), HasSubstr("chiron config: there is no command shwo; did you mean show?"));
  EXPECT_THAT(error_of({"train", "x", "--fersh"}), HasSubstr("no option --fersh; did you mean --fresh?"));
  EXPECT_THAT(error_of({"train", "x", "--qqqqqq=3"}), HasSubstr("usage: chiron train CONFIG [--set"));
  EXPECT_THAT(error_of({"--qqqqqq"}), HasSubstr("`chiron --help` lists them"));
  EXPECT_THAT(error_of({"export", "run", "--out", "x"}), HasSubstr("usage: chiron export RUN --to DIR"));
  EXPECT_THAT(error_of({"bench", "a.yaml"}),
              HasSubstr("allowed: one of step, ops; usage: chiron bench [SUBJECT] [--config"));
  EXPECT_THAT(error_of({"trian", "--help"}), HasSubstr("did you mean train?"));
  EXPECT_THAT(error_of({"--versoin"}), HasSubstr("did you mean --version?"));
  EXPECT_THAT(error_of({"train"}), HasSubstr("chiron train: CONFIG is missing; usage: chiron train CONFIG"));
  EXPECT_THAT(error_of({"train", "a", "b"}), HasSubstr("one word too many: b"));
  EXPECT_THAT(error_of({"doctor", "b"}), HasSubstr("one word too many: b"));
  EXPECT_THAT(error_of({"prepare", "a"}), HasSubstr("--out is missing"));
  EXPECT_THAT(error_of({"train", "x", "--out"}), HasSubstr("--out takes a value"));
  EXPECT_THAT(error_of({"train", "x", "--out", "a", "--out", "b"}), HasSubstr("--out is given 2 times"));
  EXPECT_THAT(error_of({"generate", "m", "--top-k", "010"}), HasSubstr("--top-k: 010 has a leading zero"));
  EXPECT_THAT(error_of({"generate", "m", "--top-p", "0"}), HasSubstr("allowed: a number > 0 and <= 1"));
  EXPECT_THAT(error_of({"generate", "m", "--device", "gup"}), HasSubstr("did you mean gpu?"));
  EXPECT_THAT(error_of({"bench", "opps"}), HasSubstr("allowed: one of step, ops"));
  EXPECT_NE(error_of({"train", "x", "--fresh=false"}), "no error");
}

TEST(CommandLine, HelpNeedsNothingElse) {
  auto table = commands();
  EXPECT_EQ(parse(table, {}).kind, Request::Kind::help);
  EXPECT_EQ(parse(table, {"--help"}).command, nullptr);
  EXPECT_EQ(parse(table, {"train", "--help"}).command->name, "train");
  EXPECT_EQ(parse(table, {"prepare", "-h"}).command->name, "prepare");
  EXPECT_EQ(parse(table, {"config"}).command->name, "config");
  EXPECT_EQ(parse(table, {"help"}).command, nullptr);
  EXPECT_EQ(parse(table, {"help", "config", "show"}).command->name, "config show");
  EXPECT_EQ(parse(table, {"--help", "train"}).kind, Request::Kind::help);
  EXPECT_THAT(error_of({"help", "trian"}), HasSubstr("did you mean train?"));
  EXPECT_EQ(parse(table, {"--version"}).kind, Request::Kind::version);
}

TEST(CommandLine, TheProgramAnswersWithExitCodes) {
  EXPECT_EQ(chiron("--help").code, 0);
  EXPECT_THAT(chiron("--version").text, StartsWith("chiron 0."));
  Outcome wrong = chiron("trian");
  EXPECT_EQ(wrong.code, 2);
  EXPECT_THAT(wrong.text, StartsWith("chiron: error: "));
  for (const char* option : {"--config", "--set", "--steps"}) {
    Outcome o = chiron(std::string("bench ops ") + option + " 7");
    EXPECT_EQ(o.code, 2) << o.text;
    EXPECT_THAT(o.text, HasSubstr(std::string("bench ops: ") + option + " belongs to bench step"));
  }
  EXPECT_THAT(chiron("bench step --set model.num_layers=1").text, HasSubstr("needs a --config"));
  EXPECT_EQ(chiron("config show /does/not/exist.yaml").code, 4);
  EXPECT_EQ(chiron("config show " CHIRON_SOURCE_DIR "/configs/tiny.yaml --set training.seed=x").code, 2);
}

TEST(CommandLine, BenchSaysWhatItMeasures) {
  Outcome o = chiron("bench --steps 1 --config " CHIRON_SOURCE_DIR "/configs/tiny.yaml");
  EXPECT_EQ(o.code, 0) << o.text;
  EXPECT_THAT(o.text, StartsWith("measuring 1 step of " CHIRON_SOURCE_DIR "/configs/tiny.yaml, "));
  EXPECT_THAT(o.text, ContainsRegex("\nparameters  +120,576\nvocab size  +256\ntokens per step  +512\n"));
  EXPECT_THAT(o.text, ContainsRegex("\nop  +calls  +milliseconds\n[a-z_]+  +[0-9]+  +[0-9.]+\n"));
}

TEST(CommandLine, BenchTakesTheVocabularyThatTrainingWould) {
  TempDir dir;
  write_file(dir / "text.txt", "some words that are not many\n");
  write_file(
      dir / "c.yaml",
      "model: {num_layers: 1, d_model: 16, num_heads: 2}\ntraining: {batch_size: 2, seq_len: 8}\ndata: {train: " +
          dir / "data" + "}\n");
  const std::string bench = "bench --steps 1 --json --config " + dir / "c.yaml";
  Outcome missing = chiron(bench);
  EXPECT_EQ(missing.code, 2);
  EXPECT_THAT(missing.text, AllOf(HasSubstr(dir / "data"), HasSubstr("set model.vocab_size")));
  ASSERT_EQ(chiron("prepare " + dir / "text.txt" + " --out " + dir / "data").code, 0);
  Outcome json = shell("( " CHIRON_PROGRAM " " + bench + " 2> /dev/null )");
  EXPECT_EQ(nlohmann::json::parse(json.text)["vocab_size"], 256) << json.text;
}

TEST(CommandLine, BenchWarnsOfABusyMachine) {
  TempDir dir;
  std::FILE* file = std::fopen((dir / "log").c_str(), "w");
  Log log(LogLevel::info, 0, 1, file);
  warn_if_busy({{"share_of_products", 0.9}}, log);
  EXPECT_EQ(read_file(dir / "log"), "");
  warn_if_busy({{"share_of_products", 1.1}}, log);
  EXPECT_THAT(read_file(dir / "log"), HasSubstr("do not trust these figures"));
  std::fclose(file);
}

TEST(CommandLine, ConfigCommands) {
  TempDir dir;
  std::string file = dir / "new.yaml";
  EXPECT_EQ(chiron("config init " + file).text, "wrote " + file + "; next: " CHIRON_PROGRAM " train " + file + "\n");
  EXPECT_EQ(read_file(file), starter_document());
  Outcome again = chiron("config init " + file);
  EXPECT_EQ(again.code, 2);
  EXPECT_THAT(again.text, HasSubstr("exists"));
  EXPECT_EQ(chiron("config check " + file).text, file + ": good\n");
  Outcome shown = chiron("config show " + file + " --set training.seed=7");
  EXPECT_EQ(shown.code, 0);
  EXPECT_EQ(shown.text, to_yaml(load_options(file, {"training.seed=7"})));
  EXPECT_EQ(chiron("config schema --format json").text, schema_document(SchemaFormat::json));
}

TEST(CommandLine, PrepareSaysWhatItRead) {
  TempDir dir;
  write_file(dir / "text.txt", "three three three words words words\n");
  const std::string prepare = "prepare " + dir / "text.txt" + " --out " + dir / "data" + " --train-bpe ";
  EXPECT_THAT(chiron(prepare + "100").text, HasSubstr("--train-bpe 100: allowed are 257 "));
  EXPECT_THAT(chiron("prepare --help").text, HasSubstr("at least 257"));
  Outcome o = chiron(prepare + "8192");
  EXPECT_EQ(o.code, 0);
  EXPECT_THAT(o.text, AllOf(HasSubstr(" tokens; 1 file read\n"), HasSubstr(", 1 document, 1 shard\n")));
  EXPECT_THAT(o.text, ContainsRegex("\nof the 8,192 tokens asked for, 26[0-9] could be learnt: no further pair"));
  EXPECT_THAT(chiron(prepare + "257 --overwrite").text, Not(HasSubstr("asked for")));
}

TEST(CommandLine, AllErrorsOfAConfigurationAreTold) {
  TempDir dir;
  const std::string a = dir / "a.yaml", b = dir / "b.yaml";
  write_file(a, "trainig: {}\nmodel:\n  d_model: x\n  num_hads: 3\n");
  write_file(b, "model: {num_heads: 5}\ndata: {train: [x, x]}\n");
  Outcome o = chiron("config check " + a + " " + CHIRON_SOURCE_DIR "/configs/tiny.yaml " + b);
  EXPECT_EQ(o.code, 2);
  for (const std::string& part : {a + ":1:1: there is no option trainig", a + ":3:12: model.d_model: x",
                                  a + ":4:3: there is no option model.num_hads", std::string("x stands twice"),
                                  std::string("tiny.yaml: good"), std::string("does not divide model.d_model 384")})
    EXPECT_THAT(o.text, HasSubstr(part));
}

TEST(CommandLine, AFolderOrAConfigurationInPlaceOfTheOtherIsExplained) {
  TempDir dir;
  const std::string tiny = CHIRON_SOURCE_DIR "/configs/tiny.yaml";
  EXPECT_THAT(chiron("plan " + dir.path()).text, HasSubstr("is a folder, and a configuration is a YAML file\n"));
  write_file(dir / "config.yaml", read_file(tiny));
  EXPECT_THAT(chiron("plan " + dir.path()).text, HasSubstr("; that of this run is " + dir / "config.yaml"));
  EXPECT_THAT(
      chiron("generate --prompt x " + tiny).text,
      AllOf(HasSubstr("is a file; give a run's folder"), HasSubstr("this configuration's run goes to runs/tiny")));
  EXPECT_THAT(chiron("generate --prompt x " + dir / "gone").text, HasSubstr("no such folder; give a run's folder"));
}

TEST(CommandLine, TheReferenceOfOptionsIsUpToDate) {
  EXPECT_EQ(read_file(CHIRON_SOURCE_DIR "/docs/config.md"), schema_document(SchemaFormat::markdown))
      << "run: ./chiron config schema --format markdown > docs/config.md";
}

TEST(CommandLine, DoctorSaysWhatThereIs) {
  Outcome doctor = chiron("doctor");
  EXPECT_EQ(doctor.code, 0);
  for (const char* part : {" core", "BLIS", "memory", " GB", "GPU", "g++"}) EXPECT_THAT(doctor.text, HasSubstr(part));
}

TEST(LongCommandLine, DoctorTestsTheDevice) {
#if defined(__SANITIZE_ADDRESS__)
  GTEST_SKIP() << "takes minutes; GpuOps runs the same cases";
#endif
  Outcome doctor = chiron("doctor --selftest");
  EXPECT_EQ(doctor.code, 0);
  for (const char* part : {"selftest", "rmsnorm_backward", "ok", "all ops are right"})
    EXPECT_THAT(doctor.text, HasSubstr(part));
}

}  // namespace
}  // namespace chiron::cli
