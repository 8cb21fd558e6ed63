#include "parallel/store.h"

#include <algorithm>
#include <map>

#include "ops/cast/cast.h"
#include "ops/residual/residual.h"
#include "parallel/held_params.h"
#include "parallel/shard_pieces.h"

namespace chiron {
namespace {

constexpr Unit kNoUnit = -2;

Shard rows_of(const Shard& shard, int64_t begin, int64_t end) {
  Shard part = shard;
  part.first_row += begin;
  for (Tensor* t : {&part.master, &part.compute, &part.grad, &part.m, &part.v})
    if (t->present()) *t = t->slice(begin, end);
  return part;
}

class Store final : public ParamStore {
 public:
  Store(Stream& s, std::span<const ParamSpec> specs, const StoreSetup& setup);

  std::span<const ParamSpec> specs() const override { return specs_; }
  void fetch(Stream& s, Unit u) override;
  void use(Stream& s, Unit u) override;
  void done(Stream& s, Unit u) override;
  View weight(Param p, Form form) override;
  Tensor grad(Param p, Accum& accum) override;
  void begin_step() override;
  void reduce(Stream& s, Unit u, bool last_micro) override;
  void finish(Stream& s) override;
  void publish(Stream& s) override { renew(s, true); }
  const Shards& shards() override { return shards_; }
  const Shards& counted() override { return counted_shards_; }
  std::span<const Shard> owned() override { return owned_; }
  bool saves(Param p) const override;
  StoreBytes bytes() const override;
  void refresh(Stream& s) override;

 private:
  /// One more sum over a group of ranks that a gradient needs.
  struct Sum {
    Communicator* group;
    Tensor gradients;
  };
  /// What a parameter's gradient has seen.
  struct Seen {
    bool used = false;       // written since the step, or the last reduction of its unit, began
    bool scattered = false;  // this step: its share holds something
  };
  /// Memory that units of one parity have in turns.
  struct Turn {
    Unit pinned = kNoUnit;   // in use
    Unit weights = kNoUnit;  // whose weights are there
    Unit writing = kNoUnit;  // whose gradients are there
  };

  static HeldParams::Layout layout_of(const StoreSetup& setup, Mesh& mesh);
  const ParamSpec& spec(Param p) const { return specs_[static_cast<size_t>(p)]; }
  Turn& turn(Unit u) { return turns_[static_cast<size_t>(u & 1)]; }
  bool across_stages(const HeldParam& h) const;
  void list_sums(Stream& s);
  void list_shards(Stream& s);
  void scatter(Stream& s, const HeldParam& h, Seen& seen, bool last_micro);
  void renew(Stream& s, bool only_trained);

  std::span<const ParamSpec> specs_;
  const bool dry_;
  Mesh alone_ = Mesh::single();
  Mesh& mesh_;
  HeldParams held_;
  Axis same_;              // data axes whose ranks hold the same
  Communicator& sharing_;  // ranks that share out state
  std::array<Turn, 2> turns_;
  std::vector<bool> here_;  // by held parameter: its buffer of its own holds the weight
  std::vector<Seen> seen_;  // by held parameter

  std::vector<std::unique_ptr<Communicator>> groups_;  // of this store
  std::vector<std::vector<Sum>> sums_;                 // by unit, when it is reduced
  std::vector<Sum> late_sums_;                         // when all units are
  std::vector<Shard> owned_, trained_, counted_;
  Stack tables_ = Stack::dry(8);  // of the shards
  Shards shards_, counted_shards_;
};

HeldParams::Layout Store::layout_of(const StoreSetup& setup, Mesh& mesh) {
  CHECK(0 <= setup.zero && setup.zero <= 3, "ZeRO stage {}", setup.zero);
  if (setup.zero == 0 || mesh.size(Axis::shard) == 1) return {};
  return {.ranks = mesh.size(Axis::shard),
          .rank = mesh.index(Axis::shard),
          .pass_weights = setup.zero == 3 && mesh.size(Axis::pp) == 1,
          .pass_gradients = setup.zero >= 2 && !setup.split_weight_gradients};
}

Store::Store(Stream& s, std::span<const ParamSpec> specs, const StoreSetup& setup)
    : specs_(specs),
      dry_(s.dry()),
      mesh_(setup.mesh ? *setup.mesh : alone_),
      held_(s, specs, setup, layout_of(setup, mesh_)),
      same_(held_.layout().ranks > 1 ? Axis::cp | Axis::ep | Axis::replica : Axis::data),
      sharing_(mesh_.group(held_.layout().ranks > 1 ? Axis::shard : Axis::none)),
      here_(held_.all().size()),
      seen_(held_.all().size()) {
  if (setup.kind == StateKind::training) list_sums(s);
  list_shards(s);
}

/// Whether other pipeline stages hold the (tied) parameter too.
bool Store::across_stages(const HeldParam& h) const {
  return !h.constant() && std::ssize(h.users) <= std::ranges::count(specs_, h.param, &ParamSpec::tied_to);
}

void Store::list_sums(Stream& s) {
  const int tp_rank = mesh_.index(Axis::tp);
  // Making a group is collective, so every rank makes the same ones, whatever it holds.
  std::map<int, Communicator*> holders;
  Communicator* stages = nullptr;
  auto make = [&](Axis axis, int color, int key, int size, const char* name) {
    groups_.push_back(s.dry() ? std::make_unique<PlannedCommunicator>(size, key, name)
                              : mesh_.group(axis).split(color, key, name));
    return groups_.back().get();
  };
  for (const ParamSpec& spec : specs_)
    for (const Piece& piece : spec.pieces)
      if (int n = piece.holders; n > 1 && !holders.contains(n))
        holders[n] = make(Axis::tp, tp_rank / n, tp_rank % n, n, "tp holders");
  if (mesh_.size(Axis::pp) > 1 &&
      std::ranges::any_of(specs_, [](const ParamSpec& p) { return p.tied_to != kNoParam; })) {
    const bool member = std::ranges::any_of(held_.all(), [&](const HeldParam& h) { return across_stages(h); });
    const bool first = mesh_.index(Axis::pp) == 0;
    stages = make(Axis::pp, member ? 0 : -1, first ? 0 : 1, 2, "pp tied");
  }

  for (const HeldParam& h : held_.all()) {
    if (!h.grad.present()) continue;
    sums_.resize(std::max(sums_.size(), static_cast<size_t>(h.last_user()) + 1));
    std::vector<Sum>& sums = sums_[static_cast<size_t>(h.last_user())];
    if (sums.empty())
      for (const Tensor& run : held_.gradient_runs(h.last_user())) sums.push_back({&mesh_.group(same_), run});
    if (spec(h.param).summand) sums.push_back({&mesh_.group(Axis::tp), h.grad_share});
    for_each_piece(spec(h.param), h.shard, [&](const Piece& piece, int64_t, int64_t at, int64_t rows) {
      if (piece.holders > 1) sums.push_back({holders.at(piece.holders), h.grad_share.slice(at, at + rows)});
    });
    // Not before all stages are through: the other one waits for what this one has yet to send.
    if (stages && across_stages(h)) late_sums_.push_back({stages, h.grad_share});
  }
}

void Store::list_shards(Stream& s) {
  bool all = true;  // are counted
  for (const HeldParam& h : held_.all()) {
    if (h.constant() || h.shard.master.numel() == 0) continue;
    owned_.push_back(h.shard);
    if (!h.grad.present()) continue;
    trained_.push_back(h.shard);
    if (!saves(h.param)) {
      all = false;
      continue;
    }
    int64_t from = 0;
    auto count_up_to = [&](int64_t end) {
      if (from < end) counted_.push_back(rows_of(h.shard, from, end));
    };
    for_each_piece(spec(h.param), h.shard, [&](const Piece& piece, int64_t, int64_t at, int64_t rows) {
      if (piece.mine) return;
      all = false;
      count_up_to(at);
      from = at + rows;
    });
    count_up_to(h.shard.master.shape[0]);
  }
  auto tabulate = [&] {
    shards_ = make_shards(s, tables_, trained_);
    counted_shards_ = all ? shards_ : make_shards(s, tables_, counted_);
  };
  tabulate();
  if (s.dry()) return;
  tables_ = Stack(s.device(), tables_.peak());
  tabulate();
}

StoreBytes Store::bytes() const {
  StoreBytes bytes = held_.bytes();
  bytes.optimizer += tables_.peak();
  return bytes;
}

bool Store::saves(Param p) const {
  const HeldParam& h = held_.at(p);
  const bool owner_is_here = std::ranges::count(h.users, spec(h.param).unit) > 0;
  const bool first_of_tp = spec(h.param).tp_dim >= 0 || mesh_.index(Axis::tp) == 0;
  return owner_is_here && first_of_tp && mesh_.index(same_) == 0;
}

void Store::fetch(Stream& s, Unit u) {
  if (!held_.layout().pass_weights) return;
  const bool ring = held_.ring_unit(u);
  const bool in_ring = ring && turn(u).weights == u;
  CHECK(!ring || in_ring || turn(u).pinned == kNoUnit, "fetch of unit {} while {} is in use", u, turn(u).pinned);
  // A dry step of a store in memory gathers nothing.
  const bool real = dry_ || !s.dry();
  for (int place : held_.used_by(u)) {
    const auto i = static_cast<size_t>(place);
    const HeldParam& h = held_.all()[i];
    if (h.ring ? in_ring : here_[i]) continue;
    sharing_.all_gather(s, h.weight, h.weight_share);
    here_[i] = real && !h.ring;
  }
  if (ring) turn(u).weights = real ? u : kNoUnit;
}

void Store::use(Stream& s, Unit u) {
  fetch(s, u);
  if (held_.ring_unit(u)) turn(u).pinned = u;
}

void Store::done(Stream&, Unit u) {
  if (held_.ring_unit(u)) turn(u).pinned = kNoUnit;
}

View Store::weight(Param p, Form form) {
  const HeldParam& h = held_.at(p);
  const int64_t rows = spec(h.param).shape[0];
  if (form == Form::master && h.shard.master.shape[0] == rows) return h.shard.master;
  if (form != Form::compute) throw Bug("this store keeps no weight in form {}", static_cast<int>(form));
  CHECK(!h.ring || !held_.layout().pass_weights || turn(h.last_user()).pinned == h.last_user(),
        "weight of unit {}, which is not in use", h.last_user());
  return View(h.weight).slice(0, rows);
}

Tensor Store::grad(Param p, Accum& accum) {
  const HeldParam& h = held_.at(p);
  Seen& seen = seen_[static_cast<size_t>(held_.find(p))];
  accum = seen.used ? Accum::add : Accum::overwrite;
  if (!h.grad.present()) return {};
  seen.used = true;
  if (h.ring && held_.layout().pass_gradients) {
    Unit& writing = turn(h.last_user()).writing;
    CHECK(writing == kNoUnit || writing == h.last_user(), "gradient of unit {} before unit {} was reduced",
          h.last_user(), writing);
    writing = h.last_user();
  }
  return h.grad.slice(0, spec(h.param).shape[0]);
}

void Store::begin_step() {
  seen_.assign(seen_.size(), {});
  for (Turn& t : turns_) t.writing = kNoUnit;
}

/// Sums a gradient over the ranks that share it out, when it is time.
void Store::scatter(Stream& s, const HeldParam& h, Seen& seen, bool last_micro) {
  if (!held_.layout().pass_gradients) {
    if (!last_micro) return;
    // A weight that nothing used in this step has no gradient: what its buffer holds is an older step's.
    if (!seen.used) s.fill_zero(h.grad);
    return sharing_.reduce_scatter(s, h.grad_share, h.grad, Reduce::sum);
  }
  if (!seen.used) {
    if (last_micro && !seen.scattered) s.fill_zero(h.grad_share);
    return;
  }
  // Behind its last row may be what another unit left.
  const int64_t rows = spec(h.param).shape[0], padded = h.grad.shape[0], share = h.grad_share.shape[0];
  if (rows < padded) s.fill_zero(h.grad.slice(rows, padded));
  const int64_t first = sharing_.rank() * share;
  const Tensor part = seen.scattered ? h.grad.slice(first, first + share) : h.grad_share;
  sharing_.reduce_scatter(s, part, h.grad, Reduce::sum);
  if (seen.scattered) add(s, h.grad_share, h.grad_share, part);
  seen = {.used = false, .scattered = true};
}

void Store::reduce(Stream& s, Unit u, bool last_micro) {
  for (int i : held_.completed_by(u))
    if (const HeldParam& h = held_.all()[static_cast<size_t>(i)]; h.grad.present())
      scatter(s, h, seen_[static_cast<size_t>(i)], last_micro);
  if (held_.ring_unit(u)) turn(u).writing = kNoUnit;
  if (!last_micro || u >= std::ssize(sums_)) return;
  for (const Sum& sum : sums_[static_cast<size_t>(u)]) sum.group->all_reduce(s, sum.gradients, Reduce::sum);
}

void Store::finish(Stream& s) {
  for (const Sum& sum : late_sums_) sum.group->all_reduce(s, sum.gradients, Reduce::sum);
}

/// Makes shares that have changed known to all.
void Store::renew(Stream& s, bool only_trained) {
  for (Turn& t : turns_) t.weights = kNoUnit;
  here_.assign(here_.size(), false);
  if (held_.layout().pass_weights) return;
  for (const HeldParam& h : held_.all())
    if (!h.constant() && (h.grad.present() || !only_trained)) sharing_.all_gather(s, h.weight, h.weight_share);
}

void Store::refresh(Stream& s) {
  for (const Shard& shard : owned_)
    if (shard.compute.present()) cast(s, shard.compute, shard.master);
  renew(s, false);
}

}  // namespace

std::unique_ptr<ParamStore> make_store(Stream& s, std::span<const ParamSpec> specs, const StoreSetup& setup) {
  return std::make_unique<Store>(s, specs, setup);
}

}  // namespace chiron
