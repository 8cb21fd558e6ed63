#!/usr/bin/env python3
"""What the documents say must be there: links, files, commands and their options, options of a run, tests.

    tests/docs_test.py PROGRAM
"""

import functools
import itertools
import re
import shlex
import subprocess
import sys
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGES = sorted(ROOT.glob("*.md")) + sorted((ROOT / "docs").glob("*.md"))
WALKS = ROOT / "CONTRIBUTING.md"  # names files, families and options that its reader is to make
PROGRAM = sys.argv.pop() if len(sys.argv) > 1 else str(ROOT / "chiron")
FENCE = re.compile(r"^ *```.*?^ *```", re.S | re.M)
CODE = re.compile(FENCE.pattern + r"|`[^`]+`", re.S | re.M)


def text_of(page):
    return page.read_text(encoding="utf-8")


@functools.lru_cache(maxsize=None)
def help_of(command):
    """What --help prints, or nothing if there is no such command."""
    run = subprocess.run([PROGRAM, *command, "--help"], capture_output=True, text=True, check=False)
    return run.stdout if run.returncode == 0 and run.stdout.split("Usage: chiron ")[1].startswith(
        " ".join(command)) else ""


def commands_in(text):
    """Command lines as words, without the program: those of blocks, and those between backquotes."""
    lines = [line for block in FENCE.findall(text) for line in block.split("\n")]
    lines += re.findall(r"`([^`\n]+)`", FENCE.sub("", text))
    for line in lines:
        match = re.match(r"\s*(?:\$ )?(?:\./|build/\w+/)?chiron ([a-z-].*)", line)
        if match:
            lexer = shlex.shlex(match.group(1), posix=True, punctuation_chars=True)
            lexer.whitespace_split = True
            yield list(itertools.takewhile(lambda word: not set(word) <= set("();<>|&"), lexer))


def unknown_in(words, options):
    """The first word of a command line that the program does not know."""
    command = [words[0]]
    if len(words) > 1 and help_of((words[0], words[1])):
        command.append(words[1])
    shown = help_of(tuple(command))
    if not shown or (shown.count("\nCommands:") and len(words) > len(command)):
        return " ".join(words[:2])
    for word in words[len(command):]:
        if word.startswith("--") and not re.search(rf"^  {re.escape(word.split('=')[0])}\b", shown, re.M):
            return word
    for flag, value in zip(words, words[1:]):
        if flag == "--set" and value.split("=")[0] not in options:
            return value
    return None


class Documents(unittest.TestCase):
    def test_links_lead_somewhere(self):
        for page in PAGES:
            for target in re.findall(r"\]\(([^)#]+)[^)]*\)", CODE.sub("", text_of(page))):
                if not re.match(r"https?:", target):
                    self.assertTrue((page.parent / target).exists(), f"{page.name}: {target}")

    def test_command_lines_are_known(self):
        options = set(re.findall(r"^\| `([\w.]+)`", text_of(ROOT / "docs/config.md"), re.M))
        seen = 0
        for page in PAGES:
            for words in commands_in(text_of(page)):
                seen += 1
                self.assertIsNone(unknown_in(words, options), f"{page.name}: chiron {' '.join(words)}")
        self.assertGreater(seen, 30)

    def test_what_is_unknown_is_found(self):
        options = {"training.seed"}
        for line, word in (("trian a.yaml", "trian a.yaml"), ("train a.yaml --fersh", "--fersh"),
                           ("config shwo a.yaml", "config shwo"), ("train a.yaml --set training.sed=1",
                                                                   "training.sed=1")):
            self.assertEqual(unknown_in(line.split(), options), word)
        self.assertIsNone(unknown_in("config show a.yaml --set training.seed=1".split(), options))

    def test_the_shown_plan_is_what_the_program_prints(self):
        def portable(table):  # without what hangs on the machine
            return [line for line in table.splitlines() if not re.match("  (workspace of products|total) ", line)]

        shown = re.search(r"^\$ \./chiron (plan .*)\n((?:.*\n)*?)```", text_of(ROOT / "README.md"), re.M)
        run = subprocess.run([PROGRAM, *shown.group(1).split()], capture_output=True, text=True, check=True, cwd=ROOT)
        self.assertEqual(portable(shown.group(2)), portable(run.stdout))
        self.assertGreater(len(portable(run.stdout)), 12)

    def test_what_is_not_there_has_the_code_that_the_page_gives(self):
        rows = dict(re.findall(r"^\| (\d+) \| \w+ \| ([^|]*)", text_of(ROOT / "docs/errors.md"), re.M))
        for code, word, command in (("3", "a data set", "eval gone --data gone"),
                                    ("3", "a model", "export gone --to x"),
                                    ("3", "text,", "prepare gone.txt --out x"),
                                    ("3", "a tokenizer", "prepare chiron --out x --tokenizer gone.json"),
                                    ("4", "a configuration", "plan gone.yaml"),
                                    ("4", "a reference dump", "check tests/golden/gpt2 --against gone")):
            self.assertIn(word, rows[code].split("that is not there")[0])
            run = subprocess.run([PROGRAM, *command.split()], capture_output=True, text=True, check=False, cwd=ROOT)
            self.assertEqual(str(run.returncode), code, command + run.stderr)

    def test_exports_do_not_meet(self):
        targets = [words[words.index("--to") + 1] for page in (ROOT / "README.md", ROOT / "docs/checkpoints.md")
                   for words in commands_in(text_of(page)) if words[0] == "export" and "RUN" not in words]
        self.assertGreater(len(targets), 2)
        self.assertEqual(len(set(targets)), len(targets))
        for target in targets:
            self.assertTrue(target.startswith("runs/"), target)

    def test_named_files_exist(self):
        for page in PAGES:
            if page == WALKS:
                continue
            for name in re.findall(r"`((?:[\w.-]+/)*[\w-]+\.(?:h|cpp|py|sh|yaml|md))`", FENCE.sub("", text_of(page))):
                if "/" in name:
                    self.assertTrue((ROOT / name).exists() or (ROOT / "src" / name).exists(), f"{page.name}: {name}")

    def test_named_tests_exist(self):
        sources = "".join(map(text_of, [*ROOT.glob("src/**/*_test.c*"), *ROOT.glob("tests/*_test.cpp")]))
        tests = set(re.findall(r"^TEST(?:_F|_P)?\((\w+),\s*(\w+)\)", sources, re.M))
        named = {test for page in PAGES if page != WALKS
                 for test in re.findall(r"`([A-Z]\w+)\.([A-Z]\w+)`", text_of(page))}
        self.assertGreater(len(named), 50)
        self.assertEqual(sorted(".".join(test) for test in named - tests), [])


if __name__ == "__main__":
    unittest.main()
