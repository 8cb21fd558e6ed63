#include "cli/command.h"
#include "cli/doctor_command.h"
#include "cli/help.h"
#include "cli/model_commands.h"
#include "cli/prepare_command.h"
#include "cli/run_commands.h"
#include "text/bpe_train.h"

namespace chiron::cli {

namespace {

void add_config(Command& c, std::string& config, std::vector<std::string>& sets) {
  c.positional("CONFIG", config, "The configuration, a YAML file; `chiron config init` writes one to start from.");
  c.value("--set", "OPTION=VALUE", sets, "Sets an option in place of the file's value, as in training.max_steps=100.");
}

void add_device(Command& c, DeviceChoice& device) { c.value("--device", "DEVICE", device, "Where to compute."); }

void add_threads(Command& c, int64_t& threads) {
  c.value("--threads", "N", threads, "Threads for computing on the CPU. 0: one per core.").at_least(0).at_most(1024);
}

constexpr const char* kModelDoc = "A run's folder, or a model's in the layout of Hugging Face.";

}  // namespace

void TrainArgs::describe(Command& c) {
  add_config(c, config, sets);
  c.value("--out", "DIR", out, "The run's folder, in place of run.dir.");
  c.flag("--fresh", fresh, "Moves an existing run aside and starts anew, instead of resuming it.");
  c.hidden_value("--crash-at", "N", crash_at, "For tests: killed at the N-th file operation.").at_least(0);
  c.hidden_value("--disk-full-at", "N", disk_full_at, "For tests: no space from the N-th on.").at_least(0);
}

void LaunchArgs::describe(Command& c) {
  c.value("--nproc", "N", nproc, "Ranks on each node. 0: as PET_NPROC_PER_NODE says.").at_least(0).at_most(4096);
  c.value("--nnodes", "M", nnodes, "Nodes. 0: as PET_NNODES says, else one.").at_least(0).at_most(65536);
  c.value("--node-rank", "R", node_rank,
          "Which of them this is, else PET_NODE_RANK. Ranks on the CPU are started from node 0.")
      .at_least(0)
      .at_most(65535);
  c.value("--rdzv", "HOST:PORT", rdzv,
          "Where ranks meet: an address of the node with rank 0, by which the others reach it. Left out: "
          "PET_MASTER_ADDR and PET_MASTER_PORT, or this machine.");
  c.value("--hostfile", "FILE", hostfile, "The nodes, as mpirun reads them; those of Slurm need none.");
  c.value("--max-restarts", "K", max_restarts,
          "How often to go on from the newest whole checkpoint after a rank has died.")
      .at_least(0)
      .at_most(1000000);
  c.rest("COMMAND", command, "What each rank runs: train and what belongs to it.");
}

void PlanArgs::describe(Command& c) {
  add_config(c, config, sets);
  c.value("--ranks", "N", ranks, "Ranks that the run is spread over. 0: as many as the options or the cluster say.")
      .at_least(0)
      .at_most(1 << 20);
  c.value("--cluster", "FILE", cluster,
          "Machines, a YAML file: predicts how long a step takes there, what of it is communication, and what a "
          "pipeline waits.");
  c.flag("--ops", ops, "Prints the step op by op: shapes, types, bytes, FLOPs, what is kept or computed again.");
}

void ConfigShowArgs::describe(Command& c) { add_config(c, config, sets); }

void ConfigCheckArgs::describe(Command& c) {
  c.positional("CONFIG", configs, "Configurations, YAML files.");
  c.value("--set", "OPTION=VALUE", sets, "Sets an option in place of each file's value.");
}

void ConfigSchemaArgs::describe(Command& c) {
  c.value("--format", "FORMAT", format, "text to read, json for editors (a JSON Schema), markdown for documents.");
}

void ConfigInitArgs::describe(Command& c) {
  c.positional("FILE", file, "Where to write; no existing file is overwritten. Left out: to the standard output.",
               false);
}

void PrepareArgs::describe(Command& c) {
  c.positional("IN", inputs, "Text files, and folders of them.");
  c.required_value("--out", "DIR", out, "The folder to write.");
  c.value("--tokenizer", "byte|FILE", tokenizer,
          "How to cut text into tokens: one per byte, or as a tokenizer.json says. Left out: byte.");
  c.value("--train-bpe", "N", train_bpe,
          fmt::format("Trains a byte-level BPE tokenizer of N tokens, at least {}, on the text and uses it. 0: none.",
                      BpeTrainer::kSmallest))
      .at_least(0)
      .at_most(1 << 20);
  c.value("--validation", "FRACTION", validation,
          "Puts so much of the text, its end, into DIR/validation and the rest into DIR/train. 0: one set, in DIR.")
      .at_least(0)
      .below(1);
  c.value("--document-separator", "TEXT", document_separator,
          "Cuts each file into documents at this text, itself left out. Left out: a file is a document.");
  c.value("--shard-tokens", "N", shard_tokens, "Tokens per file; as many are held in memory.").at_least(1);
  c.flag("--overwrite", overwrite, "Replaces a data set that is there.");
}

void CheckArgs::describe(Command& c) {
  c.positional("MODEL", model, "A model's folder in the layout of Hugging Face.");
  c.required_value("--against", "FILE", against, "The reference dump, a safetensors file.");
  add_device(c, device);
  c.value("--tolerance", "X", tolerance, "Largest relative difference that passes. 0: the default of each quantity.")
      .at_least(0);
}

void GenerateArgs::describe(Command& c) {
  c.positional("MODEL", model, kModelDoc);
  c.value("--prompt", "TEXT", prompt, "The text to continue.");
  c.value("--prompt-ids", "IDS", prompt_ids, "The same as token ids, separated by commas or spaces.");
  c.value("--max-tokens", "N", max_tokens, "How many tokens to add at most.").at_least(1);
  c.value("--temperature", "X", temperature, "Below 1: likely tokens become likelier. 0: always the likeliest.")
      .at_least(0)
      .at_most(100);
  c.value("--top-k", "K", top_k, "Draws from the K likeliest tokens. 0: from all.").at_least(0);
  c.value("--top-p", "P", top_p, "Draws from the likeliest tokens whose probabilities reach P.").above(0).at_most(1);
  c.value("--seed", "N", seed, "Where the random numbers come from.").at_least(0);
  c.value("--stop", "TEXT", stop, "Ends when this text appears.");
  add_device(c, device);
  add_threads(c, threads);
}

void EvalArgs::describe(Command& c) {
  c.positional("MODEL", model, kModelDoc);
  c.required_value("--data", "DIR", data, "A folder that `chiron prepare` wrote.");
  c.value("--batch-size", "N", batch_size, "Sequences at a time.").at_least(1);
  c.value("--seq-len", "N", seq_len, "Tokens per sequence. 0: as many as the model takes, at most 4096.").at_least(0);
  add_device(c, device);
  add_threads(c, threads);
}

void ExportArgs::describe(Command& c) {
  c.positional("RUN", run, "A run's folder.");
  c.required_value("--to", "DIR", to, "The folder to write.");
}

void BenchArgs::describe(Command& c) {
  c.positional("SUBJECT", subject, "What to measure.", false);
  c.value("--config", "CONFIG", config, "The configuration whose step is measured. Left out: a GPT of 10M parameters.");
  c.value("--set", "OPTION=VALUE", sets, "Sets an option of it.");
  c.value("--steps", "N", steps, "Steps to time, of which the median is reported.").at_least(1);
  add_threads(c, threads);
  c.flag("--json", json, "Prints JSON in place of a table.");
}

void DoctorArgs::describe(Command& c) {
  c.flag("--selftest", selftest,
         "Runs every op on the GPU, or on the CPU if there is none, and compares with plain loops: a line per op, and "
         "exit code 1 if one is wrong.");
}

std::vector<Command> commands() {
  std::vector<Command> table;
  auto add = [&](Command command) -> Command& { return table.emplace_back(std::move(command)); };
  add(make_command<TrainArgs>("train", "Trains a model, or resumes its run.", train));
  add(make_command<LaunchArgs>("launch", "Starts a training of several processes (ranks).", launch));
  add(make_command<PlanArgs>("plan", "Shows memory, parameters and FLOPs of a run, without running it.", plan));
  Command& group = add({});
  group.name = "config";
  group.summary = "Shows, checks and starts configurations.";
  add(make_command<ConfigShowArgs>("config show", "Prints the resolved configuration.", config_show));
  add(make_command<ConfigCheckArgs>("config check", "Checks configurations.", config_check));
  add(make_command<ConfigSchemaArgs>("config schema", "Prints all options, what they mean and take.", config_schema));
  add(make_command<ConfigInitArgs>("config init", "Writes a commented configuration to start from.", config_init));
  add(make_command<PrepareArgs>("prepare", "Turns text into training data.", prepare));
  add(make_command<CheckArgs>("check", "Compares a model with a reference dump: loss, gradients, optimizer steps.",
                              check));
  add(make_command<GenerateArgs>("generate", "Continues a prompt.", generate));
  add(make_command<EvalArgs>("eval", "Measures loss, perplexity and bits per byte on data.", eval));
  add(make_command<ExportArgs>("export", "Writes a run's model in the layout of Hugging Face.", export_run));
  add(make_command<DoctorArgs>("doctor", "Shows what this machine and this build can do.", doctor));
  add(make_command<BenchArgs>("bench", "Measures the speed of this machine and this build.", bench));
  add(make_command<ManArgs>("man", "Prints the manual page.", man)).hidden = true;
  return table;
}

}  // namespace chiron::cli
