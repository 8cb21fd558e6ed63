#!/usr/bin/env bash
# From nothing to a small language model that writes text, in minutes on two cores.
#   ./quickstart.sh                 learns from the King James Bible (Debian package bible-kjv)
#   ./quickstart.sh TEXT...         learns from your own UTF-8 text files, about 1 MB or more in all
# Installs the packages that are missing, builds, prepares the text, trains, evaluates, and writes a sample. Started
# again it goes on where it stopped; what is done already is not done twice. Nothing is ever deleted: once other text is
# prepared, the older data and run move aside to data/quickstart.1, runs/quickstart.1 and so on, and come back when it
# is started with their text again.
set -euo pipefail

began=0
say() { # the head of a stage, below the time that the one before it took
  local took=$((SECONDS - began))
  if [ "$took" -gt 0 ]; then echo "-- $((took / 60)) min $((took % 60)) s"; fi
  began=$SECONDS
  printf '\n== %s\n' "$*"
}
die() {
  printf 'quickstart.sh: %s\n' "$@" >&2
  exit 1
}
show() { # what a user could have typed, then its doing
  printf '$'
  printf ' %q' "$@"
  printf '\n'
  "$@"
}

# The command as it was typed, for the messages that tell to start it again.
printf -v again ' %q' "$0" "$@"

case "${1:-}" in
  -h | --help)
    sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$0"
    exit 0
    ;;
  --) shift ;;
  -*) die "unknown option $1. Usage: ./quickstart.sh [TEXT...]" ;;
esac

# Names are the caller's; make them absolute before the change of folder.
texts=()
for text in "$@"; do
  [ -e "$text" ] || die "$text: no such file"
  [ ! -d "$text" ] || die "$text is a folder; give the text files in it, as in ./quickstart.sh $text/*.txt"
  [ -f "$text" ] || die "$text is no regular file; give text files"
  [ -r "$text" ] || die "$text cannot be read: permission denied"
  [ -s "$text" ] || die "$text is empty"
  texts+=("$(cd "$(dirname -- "$text")" && pwd)/$(basename -- "$text")")
done
cd "$(dirname -- "${BASH_SOURCE[0]}")"

say "1/6 Packages"
tools/packages.sh build
source=files
if [ ${#texts[@]} -eq 0 ]; then
  source=bible
  if ! tools/packages.sh text; then
    source=synthetic
    echo "No English text could be installed, so this run learns from made-up text instead."
    echo "With text of your own: ./quickstart.sh TEXT..."
  fi
fi
echo "All there."

say "2/6 Build"
# Without the tests, which need more packages; a build folder that has them keeps them.
read -ra preset < <(tools/preset.sh)
tests=-DCHIRON_TESTS=OFF
if grep -qs '^CHIRON_TESTS:BOOL=ON' "build/${preset[0]}/CMakeCache.txt"; then tests=-DCHIRON_TESTS=ON; fi
cmake --preset "${preset[@]}" "$tests"
cmake --build --preset "${preset[0]}" --target chiron --parallel "$(nproc)"

data=data/quickstart
run=runs/quickstart
trap 'rm -rf -- "$data.new"' EXIT # what a start that was broken off has half prepared
# Renames data and run from one ending to another, last the note of what they were made from.
move() {
  [ ! -e "$data$1" ] || mv -- "$data$1" "$data$2"
  [ ! -e "$run$1" ] || mv -- "$run$1" "$run$2"
  [ ! -e "$data$1.source" ] || mv -- "$data$1.source" "$data$2.source"
}
set_aside() {
  local number=1
  [ -e "$data" ] || [ -e "$run" ] || return 0
  if [ -e "$run/lock" ] && command -v flock >/dev/null && ! flock -n "$run/lock" true; then
    die "another process trains in $run, on other text: let it end, or stop it with Ctrl-C, and start again"
  fi
  while [ -e "$data.$number" ] || [ -e "$data.$number.source" ] || [ -e "$run.$number" ]; do
    number=$((number + 1))
  done
  move "" ".$number"
  echo "The older $data and $run were made from other text; they are $data.$number and $run.$number now."
}
# Whether the data with this ending is whole and made from the text that is asked for.
fits() {
  [ -f "$data$1.source" ] && [ "$(cat "$data$1.source")" = "$stamp" ] || return 1
  [ "$source" = synthetic ] || [ -d "$data$1" ]
}

say "3/6 Text"
mkdir -p data
case "$source" in
  bible)
    texts=("$PWD/data/bible-kjv.txt")
    if [ ! -s "${texts[0]}" ]; then
      # One verse a line: -f turns the layout for readers off.
      bible -f gen1:1-rev22:21 </dev/null >data/bible-kjv.txt.new
      [ "$(wc -l <data/bible-kjv.txt.new)" -gt 31000 ] ||
        die "the program bible wrote $(wc -l <data/bible-kjv.txt.new) lines to data/bible-kjv.txt.new instead of 31102" \
          "give text files of your own: ./quickstart.sh TEXT..."
      mv data/bible-kjv.txt.new data/bible-kjv.txt
    fi
    echo "The King James Bible, from the package bible-kjv: data/bible-kjv.txt"
    ;;
  files) printf '%s\n' "${texts[@]}" ;;
  synthetic) echo "Made-up text: option data.synthetic." ;;
esac

vocabulary=1024
if [ "$source" = synthetic ]; then
  stamp=synthetic
else
  stamp="--train-bpe $vocabulary"$'\n'"$(cksum -- "${texts[@]}")"
fi
# What data/quickstart was made from is written beside it, and last: a half-made folder has no such file.
if fits ""; then
  echo "Prepared already: $data"
else
  older=""
  for note in "$data".*.source; do
    ending=${note#"$data"}
    ending=${ending%.source}
    if fits "$ending"; then older=$ending; fi
  done
  if [ -n "$older" ]; then
    set_aside
    move "$older" ""
    echo "Prepared already: $data$older, which is $data again"
  else
    if [ "$source" != synthetic ]; then
      show ./chiron prepare "${texts[@]}" --out "$data.new" --overwrite --train-bpe "$vocabulary" --validation 0.05
      tokens=$(sed -n 's/^  "tokens": \([0-9]*\),$/\1/p' "$data.new/train/dataset.json")
      [ "${tokens:-0}" -ge 20000 ] ||
        die "the text gives ${tokens:-0} tokens to learn from; at least 20000 are needed (some 60 kB of text)," \
          "and 1 MB or more is good. Give more text files: ./quickstart.sh TEXT..."
    fi
    set_aside
    rm -f "$data.source"
    if [ "$source" != synthetic ]; then mv -- "$data.new" "$data"; fi
    printf '%s\n' "$stamp" >"$data.source"
  fi
fi

say "4/6 Training"
if [ -d "$run" ]; then echo "$run exists: the run goes on where it was saved last."; fi
train=(./chiron train configs/quickstart.yaml)
if [ "$source" = synthetic ]; then
  train+=(--set data.synthetic=true --set 'data.train=[]' --set 'data.validation=[]')
fi
status=0
show "${train[@]}" || status=$?
if [ "$status" -eq 75 ]; then
  echo "Stopped and saved. To go on from here:$again"
  exit 75
elif [ "$status" -ne 0 ]; then
  exit "$status"
fi

say "5/6 Evaluation on text that the model has never seen"
if [ "$source" = synthetic ]; then
  echo "Made-up text has no validation folder; the losses of the run are in $run/metrics.jsonl."
else
  show ./chiron eval "$run" --data "$data/validation"
fi

# The first words of the text that was kept for validation, without what a shell would take for more than letters.
held_out_words() {
  local bytes
  bytes=$(sed -n 's/^  "text_bytes": \([0-9]*\),$/\1/p' "$data/validation/dataset.json")
  cat -- "${texts[@]}" | tail -c "$bytes" | head -c 60 | iconv -c -f UTF-8 -t UTF-8 | tr -s '[:space:]' ' ' |
    tr -d '"`$\\!' | sed 's/^ //' | cut -d ' ' -f 1-3
}

say "6/6 A sample"
echo "The prompt, and how the model goes on: the look of its text, with little sense; the model is small."
if [ "$source" = synthetic ]; then
  show ./chiron generate "$run" --prompt-ids 1,2,3
else
  prompt="And he said" next="In the beginning"
  if [ "$source" = files ]; then
    prompt=$(held_out_words) || true # head leaves early, which is no failure
    next=${prompt:=The}
  fi
  show ./chiron generate "$run" --prompt "$prompt"
fi

say "Done after $((SECONDS / 60)) min $((SECONDS % 60)) s. What lies where"
prompt="--prompt \"${next:-}\""
made_up=""
text_at=$data
if [ "$source" = synthetic ]; then
  prompt="--prompt-ids 4,5,6"
  text_at="none was kept: it is made up again in each run"
  made_up=" --set data.synthetic=true --set 'data.train=[]' --set 'data.validation=[]'"
fi
cat <<TXT
  the program          build/${preset[0]}/chiron (./chiron starts it)
  the configuration    configs/quickstart.yaml
  the text as tokens   $text_at
  the run              $run: checkpoints, metrics.jsonl, the resolved configuration

What to try next
  ./chiron generate $run $prompt --temperature 0.7 --seed 3
  ./chiron train configs/quickstart.yaml --out runs/wider --set model.d_model=192$made_up
  ./chiron plan configs/tiny.yaml                         memory and FLOPs before you start
  ./chiron export $run --to $run-hf   a folder that Hugging Face's transformers loads
  ./quickstart.sh my-own-text.txt                         learn from something else
  ./chiron --help                                         all commands
TXT
