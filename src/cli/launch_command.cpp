#include <fcntl.h>
#include <fmt/ranges.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <sstream>

#include "base/log.h"
#include "base/thread_pool.h"
#include "cli/program.h"
#include "cli/run_commands.h"
#include "comm/mpi_ranks.h"
#include "comm/ranks.h"

namespace chiron::cli {
namespace {

using Words = std::vector<std::string>;

std::string value_of(const Environment& environment, const std::string& name) {
  auto at = environment.find(name);
  return at == environment.end() ? "" : at->second;
}

/// What was not given, from the variables that Kubeflow sets for torchrun.
LaunchArgs with_defaults(LaunchArgs args, const Environment& environment) {
  auto take = [&](int64_t& into, int64_t unset, const std::string& name) {
    const std::string text = value_of(environment, name);
    if (into != unset || text.empty()) return;
    into = std::atoll(text.c_str());
    if (std::to_string(into) != text || into < 0)
      throw ConfigError("chiron launch: {} is {}: a whole number is needed; or give the option", name, text);
  };
  take(args.nproc, 0, "PET_NPROC_PER_NODE");
  take(args.nnodes, 0, "PET_NNODES");
  take(args.node_rank, 0, "PET_NODE_RANK");
  args.nnodes = std::max<int64_t>(1, args.nnodes);
  const std::string address = value_of(environment, "PET_MASTER_ADDR"), port = value_of(environment, "PET_MASTER_PORT");
  if (args.rdzv.empty() && !address.empty() && !port.empty())
    args.rdzv = (address.find(':') == std::string::npos ? address : "[" + address + "]") + ":" + port;
  if (!args.rdzv.empty()) split_address(args.rdzv, "--rdzv");
  return args;
}

void refuse_what_cannot_be(const LaunchArgs& args, const Environment& environment) {
  std::vector<Command> table = commands();
  const Request request = parse(table, args.command);
  if (request.kind != Request::Kind::run || request.command->name != "train")
    throw ConfigError("chiron launch: only train has ranks: chiron launch --nproc N -- train CONFIG ...");
  if (args.nproc == 0) throw ConfigError("chiron launch: --nproc is missing: how many ranks are to start on each node");
  if (args.nnodes == 1) return;
  const std::string how = fmt::format(
      "ranks on the CPUs of {} nodes are started by one mpirun, which reaches the nodes through Slurm or ssh",
      args.nnodes);
  if (args.node_rank > 0)
    throw ConfigError("chiron launch: this is node {}, but {}: run `chiron launch` on node 0 only", args.node_rank,
                      how);
  bool known = !args.hostfile.empty();
  for (const char* name : {"OMPI_MCA_orte_default_hostfile", "SLURM_JOB_NODELIST", "PBS_NODEFILE"})
    known = known || !value_of(environment, name).empty();
  if (!known) throw ConfigError("chiron launch: {}: name the nodes by --hostfile FILE, one a line", how);
  if (args.rdzv.empty())
    throw ConfigError("chiron launch: --rdzv is missing: HOST:PORT of the first node, by which the others reach it");
}

std::string find_mpirun(const Environment& environment) {
  std::istringstream path(value_of(environment, "PATH"));
  for (std::string folder; std::getline(path, folder, ':');)
    if (const std::string file = folder + "/mpirun"; ::access(file.c_str(), X_OK) == 0) return file;
  throw ConfigError(
      "chiron launch: there is no mpirun, which starts ranks on the CPU: install the package openmpi-bin, or put the "
      "mpirun that you have on the PATH");
}

Words command_line(const LaunchArgs& args, const std::string& mpirun, bool again) {
  Words words{mpirun, "-n", std::to_string(args.nproc * args.nnodes)};
  auto add = [&](const Words& more) { words.insert(words.end(), more.begin(), more.end()); };
  if (!args.hostfile.empty()) add({"--hostfile", args.hostfile});
  if (args.nnodes > 1) add({"--map-by", fmt::format("ppr:{}:node", args.nproc), "-x", "CHIRON_RDZV"});
  add({std::filesystem::read_symlink("/proc/self/exe").string()});
  for (const std::string& word : args.command)
    if (!again || word != "--fresh") add({word});  // the run that was begun anew is the one to go on with
  return words;
}

/// What mpirun is told by variables, where the user says nothing; and what must not reach the ranks: numbers that
/// another launcher gave to this process.
void set_environment(const LaunchArgs& args) {
  for (const char* name : {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK", "CHIRON_RANK",
                           "CHIRON_WORLD_SIZE", "PET_NNODES", "PET_NPROC_PER_NODE", "PET_NODE_RANK"})
    ::unsetenv(name);
  if (!args.rdzv.empty()) ::setenv("CHIRON_RDZV", args.rdzv.c_str(), 1);
  if (::geteuid() == 0) {
    ::setenv("OMPI_ALLOW_RUN_AS_ROOT", "1", 0);
    ::setenv("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1", 0);
  }
  // mpirun counts cores, of which there may be half as many as threads.
  if (args.hostfile.empty() && 2 * args.nproc > num_cores()) ::setenv("OMPI_MCA_rmaps_base_oversubscribe", "1", 0);
  // After a failure the other ranks have so many seconds to say what they know.
  ::setenv("OMPI_MCA_odls_base_sigkill_timeout", "2", 0);
}

/// The first rank that ended other than well.
struct FirstToFail {
  int rank = -1, signal = 0;
  std::string node;
};

/// What mpirun says of a rank that failed is taken out of the ranks' output: it is said in our own words.
class Output {
 public:
  void add(std::string_view bytes) {
    rest_ += bytes;
    for (size_t end; (end = rest_.find('\n')) != std::string::npos; rest_.erase(0, end + 1)) line(rest_.substr(0, end));
  }
  void finish() {
    if (!rest_.empty()) line(std::exchange(rest_, {}));
    if (!frame_.empty()) put(frame_);
  }
  const FirstToFail& first() const { return first_; }

 private:
  void line(const std::string& text) {
    const bool frame = text.size() > 70 && text.find_first_not_of('-') == std::string::npos;
    if (of_mpirun(text) || (inside_ && text.empty())) {
      inside_ = true;
      frame_.clear();
    } else if (frame && inside_) {
      inside_ = false;
    } else {
      if (!frame_.empty()) put(std::exchange(frame_, {}));
      if (frame)
        frame_ = text;
      else
        put(text);
    }
  }
  bool of_mpirun(const std::string& text) {
    if (text.starts_with("mpirun: Forwarding signal")) return true;
    FirstToFail f;
    char node[256] = "";
    if (std::sscanf(text.c_str(), "mpirun noticed that process rank %d with PID %*d on node %255s exited on signal %d",
                    &f.rank, node, &f.signal) == 3) {
      f.node = node;
      first_ = f;
      return true;
    }
    if (std::sscanf(text.c_str(), " Process name: [[%*d,%*d],%d]", &f.rank) == 1) {
      first_ = f;
      return true;
    }
    constexpr std::array kSentences{"Primary job ", "a non-zero exit code. Per user-direction",
                                    "mpirun detected that one", "the job to be terminated. The first process",
                                    "  Exit code: "};
    return std::ranges::any_of(kSentences, [&](const char* s) { return text.starts_with(s); });
  }
  static void put(std::string text) {
    text += '\n';
    (void)!::write(STDERR_FILENO, text.data(), text.size());
  }

  std::string rest_, frame_;
  bool inside_ = false;
  FirstToFail first_;
};

/// How mpirun ended.
struct Ended {
  int status = 0;
  int asked = 0;  ///< the signal that asked for the end
  FirstToFail first;
};

/// Runs mpirun. The first signal asks all ranks to stop, by one that mpirun passes on; the second ends them.
Ended run(const Words& words, const LaunchArgs& args) {
  sigset_t signals, before;
  sigemptyset(&signals);
  for (const int s : {SIGINT, SIGTERM, SIGHUP, SIGUSR1}) sigaddset(&signals, s);
  ::sigprocmask(SIG_BLOCK, &signals, &before);
  const int listener = ::signalfd(-1, &signals, SFD_CLOEXEC);
  int ends[2];
  if (listener < 0 || ::pipe2(ends, O_CLOEXEC) != 0) throw IoError("cannot start mpirun: {}", std::strerror(errno));
  std::vector<char*> arguments;
  for (const std::string& word : words) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  const pid_t pid = ::fork();
  if (pid < 0) throw IoError("cannot start mpirun: {}", std::strerror(errno));
  if (pid == 0) {
    ::setpgid(0, 0);  // a terminal's Ctrl-C is for us to pass on
    ::prctl(PR_SET_PDEATHSIG, SIGTERM);
    ::sigprocmask(SIG_SETMASK, &before, nullptr);
    for (const int s : {SIGPIPE, SIGXFSZ}) std::signal(s, SIG_DFL);
    set_environment(args);
    const int nothing = ::open("/dev/null", O_RDONLY);
    if (::dup2(nothing, 0) < 0 || ::dup2(ends[1], 2) < 0) ::_exit(126);
    ::execv(arguments[0], arguments.data());
    ::_exit(127);
  }
  ::close(ends[1]);
  Ended ended;
  Output output;
  for (bool open = true; open;) {
    std::array<pollfd, 2> polls{{{ends[0], POLLIN, 0}, {listener, POLLIN, 0}}};
    ::poll(polls.data(), polls.size(), -1);
    if (signalfd_siginfo info{}; polls[1].revents && ::read(listener, &info, sizeof info) == sizeof info) {
      ::kill(pid, ended.asked ? SIGTERM : SIGUSR1);
      ended.asked = static_cast<int>(info.ssi_signo);
    }
    if (char bytes[4096]; polls[0].revents) {
      const ssize_t n = ::read(ends[0], bytes, sizeof bytes);
      open = n > 0;
      if (open) output.add({bytes, static_cast<size_t>(n)});
    }
  }
  output.finish();
  while (::waitpid(pid, &ended.status, 0) < 0 && errno == EINTR) {
  }
  ::close(ends[0]);
  ::close(listener);
  ::sigprocmask(SIG_SETMASK, &before, nullptr);
  ended.first = output.first();
  return ended;
}

/// A rank that a signal ended has no exit code; to the others it was lost.
ExitCode code_of(const Ended& ended) {
  const int code = WIFEXITED(ended.status) ? WEXITSTATUS(ended.status) : 128 + WTERMSIG(ended.status);
  if (code <= 128 && ended.first.signal == 0) return static_cast<ExitCode>(code);
  return ended.asked ? static_cast<ExitCode>(128 + ended.asked) : ExitCode::comm;
}

std::string text_of(const Ended& ended, ExitCode code) {
  const FirstToFail& f = ended.first;
  if (f.signal)
    return fmt::format("rank {} on {} was ended by signal {} ({})", f.rank, f.node, f.signal, ::strsignal(f.signal));
  return fmt::format("{} ended with exit code {}", f.rank < 0 ? "mpirun" : fmt::format("rank {}", f.rank),
                     static_cast<int>(code));
}

/// Whether the next start may go better. 1 is mpirun's own.
bool may_go_on(ExitCode code) {
  constexpr std::array kFinal{ExitCode::done, ExitCode::check_failed, ExitCode::config,
                              ExitCode::data, ExitCode::diverged,     ExitCode::stopped};
  return std::ranges::find(kFinal, code) == kFinal.end();
}

}  // namespace

ExitCode launch(const LaunchArgs& given) {
  const Environment environment = process_environment();
  const LaunchArgs args = with_defaults(given, environment);
  refuse_what_cannot_be(args, environment);
  const std::string mpirun = find_mpirun(environment);
  if (const std::string why = why_no_mpi(); !why.empty())
    throw ConfigError("chiron launch: ranks on the CPU are joined by MPI, and {}", why);
  Log log;
  for (int64_t restarts = 0;; ++restarts) {
    const Words words = command_line(args, mpirun, restarts > 0);
    log.info("launch: {} rank{} through {}", args.nproc * args.nnodes, args.nproc * args.nnodes == 1 ? "" : "s",
             fmt::join(words, " "));
    const Ended ended = run(words, args);
    const ExitCode code = code_of(ended);
    if (code != ExitCode::done && code != ExitCode::stopped) log.error("launch: {}", text_of(ended, code));
    if (ended.asked || restarts == args.max_restarts || !may_go_on(code)) return code;
    log.info("launch: going on from the newest whole checkpoint, restart {} of {}", restarts + 1, args.max_restarts);
  }
}

}  // namespace chiron::cli
