#!/usr/bin/env python3
"""Checks the rules of the house that a compiler does not: who may include whom, and where things may stand.

    tools/check_dag.py [ROOT]        prints what it finds, and the sizes; exit code 1 if a rule is broken

The rules: includes between folders of src/ follow ALLOWED (transitively); includes are written "folder/file.h" and
resolve; a GPU or MPI vendor is named in code only in the files of VENDOR_FILES (prose and strings may name it);
headers have `#pragma once`; no macros but those of MACROS; names of files, and of types in headers, are unique; sizes
stay within the limits.
"""

import re
import sys
from pathlib import Path

# Folder -> folders it may include directly; what those may include is included too.
ALLOWED = {
    "base": [],
    "gpu": ["base"],
    "core": ["gpu"],
    "comm": ["core"],
    "ops": ["core"],
    "nn": ["core", "comm", "ops"],
    "models": ["nn"],
    "parallel": ["nn", "comm", "ops"],
    "optim": ["core", "ops"],
    "text": ["base"],
    "data": ["base", "core", "text"],
    "io": ["base", "core"],
    "train": ["models", "parallel", "optim", "data", "io"],
    "cli": ["train"],
}

MAX_COLUMNS = 120  # of a line in src/, tests/, tools/
DATA = "tests/golden/"  # reference data and the script that made it, kept as they came
MAX_LINES = 600  # of a file in src/
MAX_TOTAL = 20200  # src/ without tests, the GPU back end and what only several ranks need stays below
MAX_GPU = 10000  # the GPU back end stays below
MAX_RANKS = 7000  # groups of ranks and the layouts over them stay below
# Tests, with what they share; and the cases of ops that they run over: arguments, naive references, how to compare.
TESTS = re.compile(r"_test\.\w+$|testing\.h$|^temp_dir\.h$")
CASES = re.compile(r"_cases\.(h|cpp)$|^op_case\w*\.(h|cpp)$")

# The GPU back end: the contract, what fulfils it, each op's kernels, and what only a GPU's runs need.
GPU_FILES = re.compile(
    r"^gpu/|^core/(graph|launch)\.\w+$|\.cuh?$|_gpu\.(h|cpp)$|/gemm_(blaslt|choices)\.\w+$|"
    r"^train/(device_stream|loss_scale)\.")

# What only several ranks need: their groups, how work is laid out over them, how state is saved together.
RANK_FILES = re.compile(
    r"^(comm|parallel)/|^nn/(context|tensor)_\w+\.|^data/context_\w+\.|"
    r"^train/(layout|auto_layout|parallel_options|saver|stacks)\.|^cli/(launch|joined)_\w+\.")

# A table that tools/unicode_ranges.py wrote: nobody reads it, so it counts nowhere.
TABLES = re.compile(r"^text/unicode_ranges\.cpp$")

# Our own macros and where they are defined; then those that a library's header reads before it is included.
MACROS = {
    "CHECK": "src/base/",
    "GPU_CHECK": "src/gpu/",
    "PCRE2_CODE_UNIT_WIDTH": "src/",
    "XXH_INLINE_ALL": "src/",
}
# The emulator defines the language keywords that a GPU compiler has and the host compiler lacks.
KEYWORD_FILE, KEYWORD = "src/gpu/gpu_emu.h", re.compile(r"__\w+__$")

VENDOR_FILES = re.compile(
    r"^src/gpu/|\.cu$|\.cuh$|/gemm_blaslt[^/]*$|/attention_cudnn[^/]*$|^src/comm/(nccl|mpi)[^/]*$")
# Names that mean a vendor wherever they stand in an identifier; short ones only as a word of it (hipMalloc, USE_HIP),
# or in a vendor's own spelling (cuInit, MPI_Send).
VENDOR_ANYWHERE = re.compile(r"cuda|nccl|rccl|cudnn|cublas|cupti|cutlass|hipblas|rocblas|nvml|nvrtc", re.I)
VENDOR_WORDS = {"hip", "rocm"}
VENDOR_SPELLING = re.compile(r"^(cu[A-Z]\w*|MPI_\w+|__HIP\w*)$")
VENDOR_HEADERS = {"mpi.h"}
VENDOR_HEADER = re.compile(r"^gpu_(cuda|hip|emu)\.h$")  # a build has one of them

SOURCES = {".h", ".cpp", ".cu", ".cuh"}
CHECKED_FOR_WIDTH = SOURCES | {".py", ".sh"}


def closure(direct):
    """Folder -> all folders it may include, itself among them."""
    reach = {}

    def visit(folder):
        if folder not in reach:
            reach[folder] = {folder}.union(*(visit(other) for other in direct[folder]))
        return reach[folder]

    for folder in direct:
        visit(folder)
    return reach


TOKEN = re.compile(
    r'//[^\n]*|/\*.*?\*/|R"(?P<tag>[^()\\\s]{0,16})\(.*?\)(?P=tag)"|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'', re.S)


def strip(text, strings=True):
    """Blanks comments and, if asked, strings; line numbers stay."""

    def blank(match):
        token = match.group()
        if token[0] == "/" or strings:
            return "\n" * token.count("\n") if "\n" in token else " "
        return token

    # A ' between digits separates them.
    return TOKEN.sub(blank, re.sub(r"(?<=[0-9a-fA-F])'(?=[0-9a-fA-F])", "", text))


def names_vendor(identifier):
    if VENDOR_ANYWHERE.search(identifier) or VENDOR_SPELLING.match(identifier):
        return True
    words = re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+", identifier)
    return any(word.lower() in VENDOR_WORDS for word in words)


class Checker:
    def __init__(self, root):
        self.root = Path(root)
        self.src = self.root / "src"
        self.reach = closure(ALLOWED)
        self.problems = []

    def problem(self, path, line, text):
        self.problems.append(f"{path.relative_to(self.root)}:{line}: {text}")

    def includes(self, path, code):
        in_src = self.src in path.parents
        folder = path.relative_to(self.src).parts[0] if in_src else None
        for number, line in enumerate(code.split("\n"), 1):
            match = re.match(r'\s*#\s*include\s*([<"])([^>"]*)[>"]', line)
            if not match:
                continue
            system, target = match.group(1) == "<", match.group(2)
            if ".." in target.split("/"):
                self.problem(path, number, f"includes {target}: write it from src/, as \"folder/file.h\"")
                continue
            relative = path.relative_to(self.root).as_posix()
            stem = target.rsplit(".", 1)[0]
            if not VENDOR_FILES.search(relative) and (
                    target in VENDOR_HEADERS or any(names_vendor(part) for part in re.split(r"[/.\-]", stem))):
                self.problem(path, number, f"includes {target}: a vendor is named only in its own files (VENDOR_FILES)")
            if system:
                if (self.src / target).is_file():
                    self.problem(path, number, f"includes <{target}>: our own headers stand in quotes")
                continue
            if not (self.src / target).is_file() and not (self.root / "tests" / target).is_file():
                self.problem(path, number, f"includes \"{target}\", which is not in src/; libraries stand in <>")
                continue
            other = target.split("/")[0]
            if in_src and other not in self.reach[folder]:
                allowed = " ".join(sorted(self.reach[folder] - {folder})) or "nothing"
                self.problem(path, number, f"{folder}/ may not include {other}/ (allowed: {allowed})")

    def identifiers(self, path, code):
        if VENDOR_FILES.search(path.relative_to(self.root).as_posix()):
            return
        for number, line in enumerate(code.split("\n"), 1):
            if re.match(r"\s*#\s*include", line):
                continue
            for identifier in re.findall(r"[A-Za-z_]\w*", line):
                if names_vendor(identifier):
                    self.problem(path, number, f"{identifier}: a vendor is named only in its own files (VENDOR_FILES)")

    def macros(self, path, code):
        relative = path.relative_to(self.root).as_posix()
        for number, line in enumerate(code.split("\n"), 1):
            match = re.match(r"\s*#\s*define\s+(\w+)", line)
            if not match:
                continue
            name = match.group(1)
            if name in MACROS and relative.startswith(MACROS[name]):
                continue
            if relative == KEYWORD_FILE and KEYWORD.match(name):
                continue
            self.problem(path, number, f"defines the macro {name}: write a function, a constant or a template")

    def types(self, path, text, seen):
        """Two types of one name in two headers are one to the linker, which then runs one's code on the other."""
        if path.suffix != ".h" or VENDOR_HEADER.search(path.name):
            return
        spaces = []
        for number, line in enumerate(text.split("\n"), 1):
            if match := re.match(r"namespace\s*([\w:]*)\s*\{", line):
                spaces.append(match.group(1))
            elif line.startswith("}  // namespace") and spaces:
                spaces.pop()
            elif match := re.match(r"(?:struct|class|enum class)\s+(\w+)[^;]*\{", line):
                name = "::".join([*spaces, match.group(1)])
                if seen.get(name, path) != path:
                    self.problem(path, number, f"defines {name}, as {seen[name].relative_to(self.root)} does")
                seen[name] = path

    def width(self, path, text):
        for number, line in enumerate(text.split("\n"), 1):
            if len(line) > MAX_COLUMNS:
                self.problem(path, number, f"{len(line)} columns, at most {MAX_COLUMNS}")

    def run(self):
        total = tests = cases = device = ranks = largest = 0
        largest_path = None
        names, types = {}, {}
        if not self.src.is_dir():
            self.problems.append(f"{self.src}: no such folder")
        for top in ("src", "tests", "tools"):
            for path in sorted((self.root / top).rglob("*")):
                if path.suffix not in CHECKED_FOR_WIDTH or not path.is_file():
                    continue
                if path.relative_to(self.root).as_posix().startswith(DATA):
                    continue
                text = path.read_text(encoding="utf-8", errors="replace")
                self.width(path, text)
                if path.suffix not in SOURCES or top == "tools":
                    continue
                code = strip(text)
                if path.suffix in (".h", ".cuh") and not re.search(r"^#pragma once$", code, re.M):
                    self.problem(path, 1, "a header without #pragma once")
                self.macros(path, code)
                self.types(path, text, types)
                if top != "src":
                    self.includes(path, strip(text, strings=False))
                    continue
                parts = path.relative_to(self.src).parts
                if len(parts) == 1 or parts[0] not in ALLOWED:
                    self.problem(path, 1, f"stands in no folder of the table: {' '.join(ALLOWED)}")
                    continue
                self.includes(path, strip(text, strings=False))
                self.identifiers(path, code)
                # ops/<op>/<op>.h, .cpp, .cu are the op's own; the layer of that name in nn/ may be called the same. So
                # may a command of cli/, which has the name that users type, and the part that does its work.
                if not (parts[0] == "ops" and len(parts) == 3 and path.stem == parts[1]) and parts[0] != "cli":
                    if path.name in names:
                        self.problem(path, 1, f"the same file name as {names[path.name].relative_to(self.root)}")
                    names[path.name] = path
                lines = text.count("\n")
                if lines > MAX_LINES:
                    self.problem(path, lines, f"{lines} lines, at most {MAX_LINES}")
                if lines > largest:
                    largest, largest_path = lines, path
                if TESTS.search(path.name):
                    tests += lines
                elif CASES.search(path.name):
                    cases += lines
                elif GPU_FILES.search(path.relative_to(self.src).as_posix()):
                    device += lines
                elif RANK_FILES.search(path.relative_to(self.src).as_posix()):
                    ranks += lines
                elif not TABLES.search(path.relative_to(self.src).as_posix()):
                    total += lines
        if total >= MAX_TOTAL:
            self.problems.append(f"src/: {total} lines without tests, fewer than {MAX_TOTAL} are allowed")
        if device >= MAX_GPU:
            self.problems.append(f"src/: {device} lines of GPU back end, fewer than {MAX_GPU} are allowed")
        if ranks >= MAX_RANKS:
            self.problems.append(f"src/: {ranks} lines for several ranks, fewer than {MAX_RANKS} are allowed")
        where = f" ({largest_path.relative_to(self.root)})" if largest_path else ""
        print(f"src: {total} lines without tests (fewer than {MAX_TOTAL} allowed), {device} of the GPU back end "
              f"(fewer than {MAX_GPU}), {ranks} for several ranks (fewer than {MAX_RANKS}), "
              f"{tests} lines of tests, {cases} of their cases; largest file {largest}{where}, at most {MAX_LINES}")
        for line in self.problems:
            print(line)
        print(f"check_dag: {len(self.problems)} problem{'' if len(self.problems) == 1 else 's'}")
        return 1 if self.problems else 0


if __name__ == "__main__":
    if len(sys.argv) > 2 or any(argument.startswith("-") for argument in sys.argv[1:]):
        sys.exit(__doc__)
    sys.exit(Checker(sys.argv[1] if len(sys.argv) == 2 else Path(__file__).resolve().parent.parent).run())
