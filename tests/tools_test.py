#!/usr/bin/env python3
"""The checks in tools/ must fail on bad input and pass on good input; the scripts must say what is missing."""

import json
import os
import shutil
import struct
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
GOOD = {
    "src/base/error.h": '#pragma once\n#define CHECK(x) (void)(x)\n',
    "src/core/tensor.h": '#pragma once\n#include <vector>\n#include "base/error.h"\nstruct Tensor {};\n',
    "src/ops/linear/linear.h": '#pragma once\n#include "core/tensor.h"\n',
    "src/ops/linear/linear.cpp": '#include "ops/linear/linear.h"\n',
    "src/nn/linear.h": '#pragma once\n#include "ops/linear/linear.h"\n',
    "src/train/trainer.h": '#pragma once\n#include "core/tensor.h"\n#include "nn/linear.h"\n',
    "src/cli/main.cpp": '#include "base/error.h"\n#include "train/trainer.h"\nint main() {}\n',
    "tests/end_test.cpp": '#include "train/trainer.h"\n',
}


class Sandbox(unittest.TestCase):
    def setUp(self):
        self.root = Path(tempfile.mkdtemp(prefix="chiron_tools_"))
        self.addCleanup(shutil.rmtree, self.root)

    def put(self, files):
        for name, text in files.items():
            path = self.root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")

    def call(self, *command, env=None):
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, env=env, timeout=300)
        return done.returncode, done.stdout + done.stderr


class CheckDag(Sandbox):
    def check(self, extra=None):
        self.put(GOOD)
        self.put(extra or {})
        return self.call("python3", str(ROOT / "tools/check_dag.py"), str(self.root))

    def refused(self, extra, *words):
        code, text = self.check(extra)
        self.assertEqual(code, 1, text)
        self.assertIn("check_dag: 1 problem\n", text)
        for word in words:
            self.assertIn(word, text)

    def passes(self, extra=None):
        code, text = self.check(extra)
        self.assertEqual(code, 0, text)
        return text

    def test_good_tree(self):
        text = self.passes()
        self.assertIn("src: 17 lines without tests", text)

    def test_include_against_the_direction(self):
        self.refused({"src/core/stack.h": '#pragma once\n#include "ops/linear/linear.h"\n'}, "src/core/stack.h:2",
                     "core/ may not include ops/ (allowed: base gpu)")
        self.refused({"src/core/stack.h": "#pragma once\n", "src/models/gpt.cpp": '#include "parallel/zero.h"\n',
                      "src/parallel/zero.h": "#pragma once\n"}, "models/ may not include parallel/")

    def test_the_tests_of_a_folder_follow_its_direction(self):
        self.refused({"src/core/a_test.cpp": '#include "train/trainer.h"\n'}, "core/ may not include train/")

    def test_what_may_be_included_is_transitive(self):
        self.passes({"src/cli/a.cpp": '#include "text/bpe.h"\n', "src/text/bpe.h": "#pragma once\n"})

    def test_relative_include(self):
        self.refused({"src/core/a.cpp": '#include "../base/error.h"\n'}, "src/core/a.cpp:1")
        self.refused({"src/core/a.cpp": '#include "core/../base/error.h"\n'}, "src/core/a.cpp:1")

    def test_include_that_is_not_there(self):
        self.refused({"src/core/a.cpp": '#include "tensor.h"\n'}, "not in src/")
        self.refused({"src/core/a.cpp": '#  include "core/gone.h"\n'}, "not in src/")
        self.refused({"src/core/a.cpp": "#include <core/tensor.h>\n"}, "in quotes")

    def test_a_commented_include_is_none(self):
        self.passes({"src/core/a.cpp": '// #include "train/trainer.h"\n/*\n#include "train/trainer.h"\n*/\n'})

    def test_folder_that_the_table_lacks(self):
        self.refused({"src/utils/a.h": "#pragma once\n"}, "stands in no folder")

    def test_vendor_names(self):
        for code in ("int cudaMalloc();", "int x = hipSuccess;", "ncclComm_t c;", "int use_hip = 1;",
                     "int rocmVersion;", "void cuInit();", "int n = MPI_SUM;", "int cublas_handle;",
                     "#ifdef __CUDACC__", "#if __HIP__"):
            self.refused({"src/core/a.cpp": "\n" + code + "\n"}, "src/core/a.cpp:2", "vendor")
        for header in ("cuda_runtime.h", "nccl.h", "hip/hip_runtime.h", "mpi.h", "cudnn.h"):
            self.refused({"src/core/a.cpp": f"#include <{header}>\n"}, "src/core/a.cpp:1", "vendor")

    def test_vendor_names_in_prose_strings_and_their_own_files(self):
        self.passes({
            "src/core/a.cpp": '// cudaMalloc is slow\n/* hip\n nccl */\nauto s = "cuda";\nauto r = R"(hipX " nccl)";\n'
                              "char q = '\"'; int n = 1'000; int chip, ship, relationship, cut, current;\n",
            "src/gpu/gpu_cuda.h": "#pragma once\n#include <cuda_runtime.h>\nint cudaMalloc();\n",
            "src/ops/linear/linear.cu": "void f() { cudaMalloc(); }\n",
            "src/ops/linear/gemm_blaslt.cpp": "int cublasLtCreate();\n",
            "src/comm/nccl.cpp": "#include <nccl.h>\nint ncclInit();\n",
            "src/comm/mpi_comm.cpp": "#include <mpi.h>\nint MPI_Init();\n",
        })

    def test_code_after_a_string_is_seen(self):
        self.refused({"src/core/a.cpp": 'auto s = "a\\"b"; int x = cudaMalloc();\n'}, "cudaMalloc")

    def test_types_of_one_name(self):
        a, b = "#pragma once\nnamespace chiron {\n", "struct Piece {\n};\n}  // namespace chiron\n"
        self.refused({"src/core/a.h": a + b, "src/io/b.h": a + b}, "defines chiron::Piece, as src/core/a.h does")
        self.passes({"src/core/a.h": a + b, "src/io/b.h": "#pragma once\nnamespace chiron::io {\n" + b,
                     "src/io/c.h": a + "struct Piece;\n}  // namespace chiron\n"})

    def test_header_without_pragma_once(self):
        self.refused({"src/core/a.h": "struct A {};\n"}, "pragma once")
        self.refused({"src/core/a.h": "// #pragma once\n"}, "pragma once")

    def test_macros(self):
        self.refused({"src/core/a.cpp": "#define SQUARE(x) x\n"}, "SQUARE")
        self.refused({"src/core/a.cpp": "#  define CHECK(x) x\n"}, "CHECK")
        self.passes({"src/core/a.cpp": "", "src/gpu/gpu.h": "#pragma once\n#define GPU_CHECK(x) x\n",
                     "src/gpu/gpu_emu.h": "#pragma once\n#define __global__\n"})

    def test_wide_lines(self):
        self.passes({"src/core/a.cpp": "//" + "x" * 118 + "\n", "tools/a.sh": "#" + "\u00e4" * 119 + "\n"})
        for name in ("src/core/b.cpp", "tests/b_test.cpp", "tools/b.py"):
            self.refused({name: "//" + "x" * 119 + "\n"}, f"{name}:1", "121 columns")
            (self.root / name).unlink()

    def test_long_files(self):
        self.passes({"src/core/a.cpp": "\n" * 600})
        self.refused({"src/core/a.cpp": "\n" * 601}, "601 lines")

    def test_the_whole_is_limited(self):
        files = {f"src/core/f{n}.cpp": "\n" * 600 for n in range(33)}
        files["src/core/g_test.cpp"] = files["src/core/op_case.h"] = "#pragma once" + "\n" * 600
        files["src/core/op_cases.cpp"] = "\n" * 7
        text = self.passes(files)
        self.assertIn("600 lines of tests, 607 of their cases", text)
        self.refused({"src/core/rest.cpp": "\n" * 383}, "src/: 20200 lines")

    def test_the_gpu_back_end_is_counted_apart(self):
        text = self.passes({"src/gpu/lanes.h": "#pragma once" + "\n" * 5, "src/ops/add/add.cu": "\n" * 7,
                            "src/ops/add/add_gpu.h": "#pragma once" + "\n" * 11})
        self.assertIn("src: 17 lines without tests (fewer than 20200 allowed), 23 of the GPU back end", text)

    def test_groups_of_ranks_and_layouts_are_counted_apart(self):
        text = self.passes({"src/comm/group.h": "#pragma once" + "\n" * 5, "src/parallel/group.cpp": "\n" * 7,
                            "src/parallel/group_test.cpp": "\n" * 9})
        self.assertIn("src: 17 lines without tests", text)
        self.assertIn(" 12 for several ranks (fewer than 7000)", text)
        self.refused({f"src/comm/f{n}.cpp": "\n" * 599 for n in range(12)}, "src/: 7200 lines for several ranks")

    def test_file_names_are_unique(self):
        self.refused({"src/core/config.h": "#pragma once\n", "src/train/config.h": "#pragma once\n"},
                     "the same file name as src/core/config.h")

    def test_a_command_may_be_named_like_the_part_that_does_its_work(self):
        self.passes({"src/cli/plan.h": "#pragma once\n", "src/train/plan.h": "#pragma once\n"})

    def test_no_sources_at_all(self):
        code, text = self.call("python3", str(ROOT / "tools/check_dag.py"), str(self.root))
        self.assertEqual(code, 1, text)


class CheckHeaders(Sandbox):
    def check(self):
        return self.call(str(ROOT / "tools/check_headers.sh"), str(self.root))

    def test_good_and_bad_headers(self):
        self.put({"src/a/good.h": "#pragma once\n#include <string>\ninline std::string f() { return {}; }\n",
                  "src/b/user.h": '#pragma once\n#include "a/good.h"\n'})
        code, text = self.check()
        self.assertEqual(code, 0, text)
        self.assertIn("2 headers", text)
        self.put({"src/a/bad.h": "#pragma once\ninline std::string g() { return {}; }\n"})
        code, text = self.check()
        self.assertEqual(code, 1, text)
        self.assertIn("a/bad.h", text)

    def test_no_header_is_an_error(self):
        self.put({"src/a/a.cpp": "int x;\n"})
        code, text = self.check()
        self.assertEqual(code, 1, text)


class Packages(Sandbox):
    """tools/packages.sh on machines that lack things: a PATH that holds only what the case needs."""

    def machine(self, *programs, **scripts):
        bin_folder = self.root / "bin"
        bin_folder.mkdir(exist_ok=True)
        for name in ("bash", "sed", "cat", "env") + programs:
            target = shutil.which(name)
            if target and not (bin_folder / name).exists():
                (bin_folder / name).symlink_to(target)
        for name, body in scripts.items():
            path = bin_folder / name.replace("_", "-")
            path.write_text(f"#!{shutil.which('bash')}\n{body}\n")
            path.chmod(0o755)
        return {"PATH": str(bin_folder), "LOG": str(self.root / "log")}

    def run_with(self, env, *arguments):
        return self.call(shutil.which("bash"), str(ROOT / "tools/packages.sh"), *arguments, env=env)

    def log(self):
        path = self.root / "log"
        return path.read_text() if path.exists() else ""

    def test_nothing_missing_does_nothing(self):
        env = self.machine(bible="", apt_get='echo "$@" >>"$LOG"; exit 1', id="echo 0")
        self.assertEqual(self.run_with(env, "text"), (0, ""))
        self.assertEqual(self.log(), "")

    def test_installs_what_is_missing_as_root(self):
        env = self.machine(apt_get='echo "$@" >>"$LOG"', apt_cache="exit 0", id="echo 0")
        code, text = self.run_with(env, "text")
        self.assertEqual(code, 0, text)
        self.assertIn("Installing with apt-get: bible-kjv", text)
        self.assertIn("install -y -q --no-install-recommends bible-kjv\n", self.log())
        self.assertNotIn("update", self.log())

    def test_reads_the_lists_anew_if_a_name_is_unknown(self):
        env = self.machine(apt_get='echo "$@" >>"$LOG"', apt_cache="exit 100", id="echo 0")
        code, text = self.run_with(env, "text")
        self.assertEqual(code, 0, text)
        self.assertEqual(self.log().split("\n")[0], "update -q")
        self.assertIn("install", self.log().split("\n")[1])

    def test_uses_sudo_if_not_root(self):
        env = self.machine(apt_get='echo "$@" >>"$LOG"', apt_cache="exit 0", id="echo 1000",
                           sudo='echo "sudo $1" >>"$LOG"; exec "$@"')
        code, text = self.run_with(env, "text")
        self.assertEqual(code, 0, text)
        self.assertIn("apt-get and sudo: bible-kjv", text)
        self.assertIn("sudo env\n", self.log())

    def test_no_sudo_names_the_command(self):
        code, text = self.run_with(self.machine(apt_get="", id="echo 1000"), "text")
        self.assertEqual(code, 1)
        self.assertIn("as root: apt-get install bible-kjv", text)

    def test_no_apt_names_the_packages(self):
        code, text = self.run_with(self.machine(), "build", "test")
        self.assertEqual(code, 1)
        for word in ("no apt-get", "cmake", "libblis-openmp-dev", "libgmock-dev", "package manager"):
            self.assertIn(word, text)
        self.assertNotIn("bible", text)

    def test_apt_that_fails_names_the_packages(self):
        env = self.machine(apt_get='echo "$@" >>"$LOG"; exit 100', apt_cache="exit 0", id="echo 0")
        code, text = self.run_with(env, "text")
        self.assertEqual(code, 1)
        self.assertIn("missing (names of Debian 12 and Ubuntu 24.04): bible-kjv", text)

    def test_unknown_group(self):
        self.assertEqual(self.run_with(self.machine(), "everything")[0], 2)
        self.assertEqual(self.run_with(self.machine())[0], 2)


class Launcher(Sandbox):
    def test_prefers_gpu_builds_and_passes_everything_on(self):
        shutil.copy(ROOT / "chiron", self.root / "chiron")
        code, text = self.call(str(self.root / "chiron"), "doctor")
        self.assertEqual(code, 127)
        self.assertIn("not built yet", text)
        for preset in ("cuda-portable", "cpu", "hip", "cuda"):
            program = self.root / "build" / preset / "chiron"
            self.put({f"build/{preset}/chiron": f'#!/bin/sh\necho {preset} "$#" "$1"\nexit 3\n'})
            os.chmod(program, 0o755)
            code, text = self.call(str(self.root / "chiron"), "a b", "c")
            self.assertEqual((code, text), (3, f"{preset} 2 a b\n"))

    def test_works_through_a_link(self):
        shutil.copy(ROOT / "chiron", self.root / "chiron")
        self.put({"build/cpu/chiron": "#!/bin/sh\necho here\n"})
        os.chmod(self.root / "build/cpu/chiron", 0o755)
        (self.root / "bin").mkdir()
        (self.root / "bin/chiron").symlink_to(self.root / "chiron")
        self.assertEqual(self.call(str(self.root / "bin/chiron")), (0, "here\n"))


class Preset(Sandbox):
    """tools/preset.sh on machines with and without a GPU."""

    def preset(self, cards, nvcc=None):
        smi = "".join(f"echo '{card}'\n" for card in cards) or "exit 9\n"
        self.put({"bin/nvidia-smi": "#!/bin/sh\n" + smi})
        if nvcc:
            self.put({"bin/nvcc": f"#!/bin/sh\necho 'Cuda compilation tools, release {nvcc}, V{nvcc}.1'\n"})
        for program in (self.root / "bin").iterdir():
            os.chmod(program, 0o755)
        env = dict(os.environ, PATH=f"{self.root / 'bin'}:/usr/bin:/bin")
        done = subprocess.run([ROOT / "tools/preset.sh"], capture_output=True, text=True, env=env, check=True)
        return done.stdout.split(), done.stderr

    def test_no_gpu(self):
        words, why = self.preset([])
        self.assertEqual(words, ["cpu"])
        self.assertIn("no GPU was found", why)

    def test_cards_at_hand(self):
        words, why = self.preset(["NVIDIA H200, 9.0", "NVIDIA H200, 9.0", "NVIDIA L4, 8.9"], nvcc="13.0")
        self.assertEqual(words[:2], ["cuda", "-DCHIRON_CUDA_ARCHITECTURES=89-real;90a-real"])
        self.assertIn("NVIDIA H200", why)

    def test_an_old_compiler(self):
        words, why = self.preset(["NVIDIA L4, 8.9"], nvcc="11.8")
        self.assertEqual(words, ["cpu"])
        self.assertIn("12.4 is needed", why)


class Quickstart(Sandbox):
    """quickstart.sh with stand-ins for the build and the program: what it calls, and what it keeps."""

    PROGRAM = """#!/bin/bash
printf '%s|' "$@" >>calls; echo >>calls
case "$1" in
  prepare)
    while [ "$1" != --out ]; do shift; done
    mkdir -p "$2/train" "$2/validation"
    printf '{\\n  "tokens": 9,\\n  "text_bytes": 32,\\n' >"$2/validation/dataset.json"
    count=$(cat tokens 2>/dev/null || echo 20000)
    printf '{\\n  "tokens": %s,\\n  "shards": [\\n    {\\n      "tokens": 7,\\n' "$count" >"$2/train/dataset.json"
    exit "$(cat prepare_status 2>/dev/null || echo 0)"
    ;;
  train) mkdir -p runs/quickstart; exit "$(cat train_status 2>/dev/null || echo 0)" ;;
esac
"""

    def setUp(self):
        super().setUp()
        self.put({"chiron": self.PROGRAM, "tools/packages.sh": '#!/bin/sh\n[ "$1" != text ] || exit "$NO_TEXT"\n',
                  "tools/preset.sh": "#!/bin/sh\necho cpu\n",
                  "bin/cmake": "#!/bin/sh\necho cmake \"$@\" >>calls\n",
                  "bin/bible": "#!/bin/sh\nfor i in $(seq 31102); do echo verse $i; done\n",
                  "my text.txt": 'Some words.\nThe "last" of my own words, $5.\n'})
        shutil.copy(ROOT / "quickstart.sh", self.root)
        for name in ("chiron", "tools/packages.sh", "tools/preset.sh", "bin/cmake", "bin/bible"):
            os.chmod(self.root / name, 0o755)

    def start(self, *texts, no_text="0"):
        (self.root / "calls").unlink(missing_ok=True)
        env = dict(os.environ, PATH=f"{self.root / 'bin'}:{os.environ['PATH']}", NO_TEXT=no_text)
        code, text = self.call(str(self.root / "quickstart.sh"), *map(str, texts), env=env)
        calls = self.root / "calls"
        return code, text, calls.read_text() if calls.exists() else ""

    def test_own_text_with_a_space_in_its_name(self):
        code, text, calls = self.start(self.root / "my text.txt")
        self.assertEqual(code, 0, text)
        self.assertIn(f"prepare|{self.root / 'my text.txt'}|--out|data/quickstart.new|--overwrite|"
                      "--train-bpe|1024|", calls)
        self.assertTrue((self.root / "data/quickstart/train/dataset.json").exists())
        self.assertFalse((self.root / "data/quickstart.new").exists())
        order = [line.split("|")[0] for line in calls.splitlines() if "|" in line]
        self.assertEqual(order, ["prepare", "train", "eval", "generate"])
        self.assertIn("What to try next", text)
        self.assertIn("generate|runs/quickstart|--prompt|The last of|", calls)
        self.assertIn('./chiron generate runs/quickstart --prompt "The last of" --temperature', text)
        self.assertRegex(text, r"== Done after \d+ min \d+ s")
        self.assertNotRegex(text, r"(?m)^  chiron |--to (?!runs/)")
        self.assertEqual(text.count("The prompt, and how"), 1)

    def test_the_time_of_each_stage_is_shown(self):
        self.put({"bin/cmake": "#!/bin/sh\nsleep 1.1\n"})
        code, text, calls = self.start(self.root / "my text.txt")
        self.assertEqual(code, 0, text)
        self.assertRegex(text, r"(?s)2/6 Build.*-- 0 min [2-9] s\n\n== 3/6")

    def test_a_second_start_prepares_nothing_again(self):
        self.start(self.root / "my text.txt")
        code, text, calls = self.start(self.root / "my text.txt")
        self.assertEqual(code, 0, text)
        self.assertNotIn("prepare|", calls)
        self.assertIn("Prepared already", text)
        self.assertIn("goes on where it was saved", text)

    def test_other_text_moves_the_older_things_aside(self):
        self.start(self.root / "my text.txt")
        (self.root / "data/quickstart/mark").touch()
        self.put({"my text.txt": "Other words.\n"})
        code, text, calls = self.start(self.root / "my text.txt")
        self.assertEqual(code, 0, text)
        self.assertIn("prepare|", calls)
        self.assertTrue((self.root / "data/quickstart.1/mark").exists())
        self.assertTrue((self.root / "runs/quickstart.1").is_dir())
        self.put({"my text.txt": "Once more.\n"})
        self.start(self.root / "my text.txt")
        self.assertTrue((self.root / "data/quickstart.2").is_dir())

    def test_an_earlier_text_finds_its_data_and_run(self):
        self.put({"other.txt": "Other words.\n"})
        self.start(self.root / "my text.txt")
        self.put({"runs/quickstart/mark": "", "data/quickstart/mark": ""})
        self.start(self.root / "other.txt")
        self.assertFalse((self.root / "runs/quickstart/mark").exists())
        code, text, calls = self.start(self.root / "my text.txt")
        self.assertEqual(code, 0, text)
        self.assertNotIn("prepare|", calls)
        self.assertTrue((self.root / "runs/quickstart/mark").exists())
        self.assertTrue((self.root / "data/quickstart/mark").exists())
        code, text, calls = self.start(self.root / "other.txt")
        self.assertNotIn("prepare|", calls)
        self.assertTrue((self.root / "runs/quickstart.1/mark").exists() or
                        (self.root / "runs/quickstart.2/mark").exists(), text)

    def test_text_that_cannot_be_used_moves_nothing(self):
        self.start(self.root / "my text.txt")
        self.put({"data/quickstart/mark": "", "runs/quickstart/mark": "", "other.txt": "Other words.\n"})
        for bad, expected, words in (({"prepare_status": "3"}, 3, ""), ({"tokens": "19999"}, 1, "19999 tokens")):
            self.put(bad)
            code, text, calls = self.start(self.root / "other.txt")
            self.assertEqual(code, expected, text)
            self.assertIn(words, text)
            self.assertFalse((self.root / "data/quickstart.new").exists())
            self.assertNotIn("train|", calls.replace("prepare|", ""))
            self.assertTrue((self.root / "data/quickstart/mark").exists())
            self.assertTrue((self.root / "runs/quickstart/mark").exists())
            code, text, calls = self.start(self.root / "my text.txt")
            self.assertEqual((code, "prepare|" in calls), (0, False), text)
            for name in bad:
                (self.root / name).unlink()
        code, text, calls = self.start(self.root / "other.txt")
        self.assertEqual(code, 0, text)
        self.assertTrue((self.root / "data/quickstart.1/mark").exists())

    def test_without_files_it_reads_the_bible(self):
        code, text, calls = self.start()
        self.assertEqual(code, 0, text)
        self.assertIn(f"prepare|{self.root / 'data/bible-kjv.txt'}|", calls)
        self.assertEqual((self.root / "data/bible-kjv.txt").read_text().count("\n"), 31102)
        self.assertIn("--prompt|And he said|", calls)
        self.assertIn('--prompt "In the beginning" --temperature', text)

    def test_a_text_that_is_cut_off_is_noticed(self):
        self.put({"bin/bible": "#!/bin/sh\necho verse\n"})
        code, text, calls = self.start()
        self.assertEqual(code, 1)
        self.assertIn("1 lines", text)
        self.assertNotIn("prepare|", calls)

    def test_without_any_text_it_takes_the_synthetic_set(self):
        code, text, calls = self.start(no_text="1")
        self.assertEqual(code, 0, text)
        self.assertIn("made-up text", text)
        self.assertNotIn("prepare|", calls)
        self.assertIn("data.synthetic=true", calls)
        self.assertIn("./chiron generate runs/quickstart --prompt-ids", text)
        self.assertIn("--set model.d_model=192 --set data.synthetic=true", text)

    def test_bad_files_are_named_before_anything_happens(self):
        self.put({"empty.txt": ""})
        for name, words in (("gone.txt", "no such file"), ("data", "no such file"), ("/dev/null", "no regular file"),
                            ("tools", "is a folder; give the text files in it"), ("empty.txt", "is empty")):
            code, text, calls = self.start(self.root / name)
            self.assertEqual(code, 1)
            self.assertIn(name, text)
            self.assertIn(words, text)
            self.assertEqual(calls, "")
        self.assertEqual(self.start("--fast")[0], 1)

    def test_a_stopped_or_failed_training_ends_it(self):
        self.put({"train_status": "75"})
        code, text, calls = self.start(self.root / "my text.txt")
        self.assertEqual(code, 75)
        again = f"{self.root}/quickstart.sh {self.root}/my\\ text.txt\n"
        self.assertIn(f"Stopped and saved. To go on from here: {again}", text)
        self.assertNotIn("eval|", calls)
        self.put({"train_status": "7"})
        self.assertEqual(self.start(self.root / "my text.txt")[0], 7)


class DcpRead(Sandbox):
    """The part of tests/dcp_read.py that needs no PyTorch."""

    def shard(self, rank, tensors):
        """A file of float32 tensors: name -> (offsets, shape, values)."""
        header, data = {}, b""
        for name, (_, shape, values) in tensors.items():
            raw = struct.pack(f"<{len(values)}f", *values)
            header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [len(data), len(data) + len(raw)]}
            data += raw
        offsets = json.dumps({name: {"saved_offsets": entry[0]} for name, entry in tensors.items()})
        header["__metadata__"] = {"format": "pt", "DCP_VERSION": "1.0", "DCP_SHARDING_INFO": offsets}
        text = json.dumps(header).encode()
        path = self.root / f"shard-{rank:05}-model-00001-of-00001.safetensors"
        path.write_bytes(struct.pack("<Q", len(text)) + text + data)

    def read(self):
        return self.call(ROOT / "tests/dcp_read.py", "--plain", self.root)

    def test_shards_are_put_together(self):
        sys.path.insert(0, str(ROOT / "tests"))
        import dcp_read
        self.shard(1, {"w": ([0, 0], [2, 2], [0, 1, 4, 5]), "scale": ([], [], [7])})
        self.shard(2, {"w": ([0, 2], [2, 2], [2, 3, 6, 7]), "v": ([1], [2], [1, 2])})
        self.shard(3, {"w": ([2, 0], [1, 4], [8, 9, 10, 11]), "v": ([0], [1], [0])})
        whole = dcp_read.assemble_all(self.root)
        self.assertEqual(whole["w"], ("F32", [3, 4], struct.pack("<12f", *range(12))))
        self.assertEqual(whole["v"], ("F32", [3], struct.pack("<3f", 0, 1, 2)))
        self.assertEqual(whole["scale"], ("F32", [], struct.pack("<f", 7)))
        self.assertEqual(self.read(), (0, "3 tensors, 0 differ\n"))

    def test_overlaps_and_holes_are_found(self):
        self.shard(1, {"w": ([0], [2], [0, 1])})
        self.shard(2, {"w": ([1], [2], [1, 2])})
        code, text = self.read()
        self.assertNotEqual(code, 0)
        self.assertIn("w: two chunks overlap", text)
        self.shard(2, {"w": ([3], [2], [3, 4])})
        code, text = self.read()
        self.assertNotEqual(code, 0)
        self.assertIn("w: 1 of its 5 elements are in no shard", text)


if __name__ == "__main__":
    unittest.main()
