// One forward of a Llama-like network over any mixture of rows: new tokens of running sequences
// and slices of prompts. One call goes through all layers, so that a row costs no calls between.
//
// Every number of a row depends on that row and its sequence only, never on the other rows, the
// number of threads or the way a prompt was cut.

#include <algorithm>
#include <cstdlib>
#include <new>

#include "attention_bytes.h"
#include "multiply.h"
#include "product.h"
#include "profile.h"
#include "select.h"
#include "team.h"
#include "tiles.h"

extern "C" {

struct Layer {
  Matrix query, key, value, output, gate, up, down;
  const float *attention_norm, *mlp_norm;  // [hidden]
  const float *query_norm, *key_norm;      // [head_dim], or null
  uint8_t *keys, *values;                  // pages, see pages.h
};

struct Model {
  int32_t num_layers, hidden, inner, num_heads, num_kv_heads, head_dim, vocab, num_threads;
  float eps;
  KvFormat kv_format;
  Matrix embedding, head;
  const float* norm;
  const Layer* layers;
};

struct Batch {
  int32_t num_rows, num_runs, table_width, num_logits;
  const int32_t* token_ids;   // [num_rows]
  const int32_t* runs;        // [num_runs, 3]: first row, number of rows, first position
  const int32_t* tables;      // [num_runs, table_width]: pages of the run's sequence
  const float *cosines, *sines;  // [num_rows, head_dim / 2]
  const int32_t* logit_rows;  // [num_logits]
  float* logits;              // [num_logits, vocab]
};
}

namespace {

template <typename T>
T* carve(char*& at, size_t count) {
  T* here = (T*)at;
  at += (count * sizeof(T) + 127) / 64 * 64;
  return here;
}

struct Run {
  int first, count, start;
  const int32_t* table;
};

class Forward {
 public:
  Forward(const Model& model, const Batch& batch) : m_(model), b_(batch) {
    group_ = m_.num_heads / m_.num_kv_heads;
    query_size_ = m_.num_heads * m_.head_dim;
    kv_size_ = m_.num_kv_heads * m_.head_dim;
    qkv_size_ = query_size_ + 2 * kv_size_;
    // Rows of long runs are taken in tiles; a lone row is cut into parts for balance.
    // Sharing out so few rows would leave members waiting: each makes the inputs of its products.
    copies_ = b_.num_rows <= m_.num_threads ? m_.num_threads : 1;
    has_tiles_ = m_.kv_format == BRAIN && m_.head_dim % 32 == 0 && have_tiles();
    tile_rows_ = std::max(1, most_queries() / group_);
    for (int i = 0; i < b_.num_runs; i++) {
      const int32_t* r = b_.runs + i * 3;
      runs_.push_back({r[0], r[1], r[2], b_.tables + (size_t)i * b_.table_width});
    }
    plan();
  }

  size_t scratch_bytes() {
    char* end = nullptr;
    lay_out(end);
    return (size_t)end;
  }

  void lay_out(char*& at) {
    const size_t rows = b_.num_rows;
    x_ = carve<float>(at, rows * m_.hidden);
    qkv_ = carve<float>(at, rows * qkv_size_);
    wide_ = carve<float>(at, rows * (m_.inner > query_size_ ? m_.inner : query_size_));
    hidden_in_ = rows_of(at, rows * copies_, m_.hidden);
    // Queries, keys, values and logits feel rounding the most: the inputs of their products are rounded
    // twice, the second time what the first took away.
    attention_in_ = rows_of(at, rows * copies_ * 2, m_.hidden);
    query_in_ = rows_of(at, rows * copies_, query_size_);
    inner_in_ = rows_of(at, rows * copies_, m_.inner);
    logits_in_ = rows_of(at, (size_t)b_.num_logits * 2, m_.hidden);
    partials_ = carve<Partial>(at, (size_t)num_partials_ * group_);
    partial_o_ = carve<float>(at, (size_t)num_partials_ * group_ * m_.head_dim);
  }

  void run(int me, Team& team) {
    FLM_TIMING(me == 0);
    each(b_.num_rows, me, team, [&](int row) {
      read_row(m_.embedding, b_.token_ids[row], x_ + (size_t)row * m_.hidden);
    });
    for (int i = 0; i < m_.num_layers; i++) {
      attention(m_.layers[i], me, team);
      mlp(m_.layers[i], me, team);
    }
    logits(me, team);
  }

 private:
  struct Member {  // a row of an item; `partial` is where its results wait for their merge, or -1
    int row, position, partial;
  };

  struct Item {  // rows that look at the same parts, for one kv head
    const Run* run;  // whose pages they are
    int first, count;  // members
    int kv_head, part, num_parts;
    bool writes;  // the row's own key and value are still to be written
  };

  struct Merge {  // the partial results of a row
    int row, kv_head, partial, num_parts;
  };

  struct Group {  // rows of a run whose keys and values are written together
    const Run* run;
    int row, count;
  };

  static Rows rows_of(char*& at, size_t rows, int size) {
    int blocks = (size + BLOCK - 1) / BLOCK;
    return {carve<int8_t>(at, rows * blocks * BLOCK), carve<float>(at, rows * blocks * 2),
            carve<float>(at, rows * blocks), carve<int32_t>(at, rows * blocks * 2), blocks};
  }

  void plan() {
    std::vector<const Run*> lone;
    for (const Run& run : runs_) {
      if (run.count == 1) {
        lone.push_back(&run);
        continue;
      }
      cut_into_groups(run);
      for (int row = 0; row < run.count; row += tile_rows_) {
        int count = std::min(run.count - row, tile_rows_);
        int parts = (run.start + row + count - 1) / PART + 1;
        for (int h = 0; h < m_.num_kv_heads; h++) {
          items_.push_back({&run, (int)members_.size(), count, h, 0, parts, false});
          for (int i = row; i < row + count; i++)
            members_.push_back({run.first + i, run.start + i, -1});
        }
      }
    }
    for (int h = 0; h < m_.num_kv_heads; h++) plan_lone(lone, h);
  }

  // Each part of a lone row's sequence is an item, for balance; rows whose sequences have a part in
  // common look at it together, so that it is read once.
  void plan_lone(const std::vector<const Run*>& lone, int h) {
    int most_parts = 0;
    std::vector<int> partials;
    for (const Run* run : lone) {
      const int parts = run->start / PART + 1;
      most_parts = std::max(most_parts, parts);
      partials.push_back(parts == 1 ? -1 : num_partials_);
      if (parts == 1) continue;
      merges_.push_back({run->first, h, num_partials_, parts});
      num_partials_ += parts;
    }
    std::vector<bool> is_done;
    for (int p = 0; p < most_parts; p++) {
      is_done.assign(lone.size(), false);
      for (size_t i = 0; i < lone.size(); i++) {
        if (is_done[i] || lone[i]->start / PART < p) continue;
        items_.push_back({lone[i], (int)members_.size(), 0, h, p, 1, lone[i]->start / PART == p});
        for (size_t j = i; j < lone.size() && items_.back().count < tile_rows_; j++) {
          if (is_done[j] || (j > i && !share_part(*lone[i], *lone[j], p))) continue;
          is_done[j] = true;
          const int partial = partials[j] < 0 ? -1 : partials[j] + p;
          members_.push_back({lone[j]->first, lone[j]->start, partial});
          items_.back().count++;
        }
      }
    }
  }

  // Whether two sequences have all of part p, and in the same pages.
  static bool share_part(const Run& a, const Run& b, int p) {
    const size_t at = (size_t)p * PART_PAGES;
    return std::min(a.start, b.start) / PART > p &&
           std::equal(a.table + at, a.table + at + PART_PAGES, b.table + at);
  }

  // Positions that share lanes are written by one member.
  void cut_into_groups(const Run& run) {
    for (int row = 0; row < run.count;) {
      int count = std::min(GROUP - (run.start + row) % GROUP, run.count - row);
      groups_.push_back({&run, run.first + row, count});
      row += count;
    }
  }

  // work(i) for this member's share of 0 .. count - 1, then everybody waits for everybody.
  template <typename Work>
  void each(int count, int me, Team& team, Work work) {
    Share share(count, me, team.size());
    for (int i = share.first; i < share.last; i++) work(i);
    team.barrier();
  }

  void norm(const float* x, const float* weight, int size, float* out) const {
    vf squares = splat(0.0f);
    for (int i = 0; i < size; i += LANES) squares = fma(load(x + i), load(x + i), squares);
    float scale = 1.0f / std::sqrt(lane_sum(squares) / (float)size + m_.eps);
    for (int i = 0; i < size; i += LANES) store(out + i, load(x + i) * scale * load(weight + i));
  }

  // make(rows, row) for every row of a product's input, which takes `per_row` quantised rows; gives
  // those that this member reads.
  template <typename Make>
  Rows input(const Rows& rows, int per_row, int me, Team& team, Make make) {
    FLM_TIMED(INPUTS);
    if (copies_ == 1) {
      each(b_.num_rows, me, team, [&](int row) { make(rows, row); });
      return rows;
    }
    Rows own = rows.from((size_t)me * b_.num_rows * per_row);
    for (int row = 0; row < b_.num_rows; row++) make(own, row);
    return own;
  }

  Rows normed_input(const Rows& to, int per_row, const float* weight, int me, Team& team) {
    std::vector<float> normed(m_.hidden);
    return input(to, per_row, me, team, [&](const Rows& rows, int row) {
      norm(x_ + (size_t)row * m_.hidden, weight, m_.hidden, normed.data());
      quantise_row(normed.data(), m_.hidden, rows, row * per_row, per_row == 2);
    });
  }

  Rows wide_input(const Rows& to, int size, int me, Team& team) {
    return input(to, 1, me, team, [&](const Rows& rows, int row) {
      quantise_row(wide_ + (size_t)row * size, size, rows, row);
    });
  }

  template <typename Done>
  void product(const Matrix& matrix, const Rows& in, int first, int last, Done done) const {
    FLM_TIMED(PRODUCTS);
    if (first < last) multiply(matrix, in, b_.num_rows, first, last, done);
  }

  // The product of an input with two quantised rows for each: done(panel, row, sums, is_second).
  template <typename Done>
  static void fine_product(const Matrix& matrix, const Rows& in, int num_rows, int first, int last,
                           Done done) {
    if (first >= last) return;
    multiply(matrix, in, num_rows * 2, first, last, [&](int panel, int row, vf sums) {
      // The bias was added to both.
      if (row % 2 == 1 && matrix.bias != nullptr) sums -= load(matrix.bias + panel * LANES);
      done(panel, row / 2, sums, row % 2 == 1);
    });
  }

  void attention(const Layer& layer, int me, Team& team) {
    Rows in = normed_input(attention_in_, 2, layer.attention_norm, me, team);
    const Matrix* parts[3] = {&layer.query, &layer.key, &layer.value};
    const int offsets[3] = {0, query_size_, query_size_ + kv_size_};
    const int total = parts[0]->num_panels() + parts[1]->num_panels() + parts[2]->num_panels();
    Share share(total, me, team.size());
    for (int i = 0, base = 0; i < 3; base += parts[i]->num_panels(), i++) {
      int count = parts[i]->num_panels();
      FLM_TIMED(PRODUCTS);
      int first = share.first - base < 0 ? 0 : share.first - base;
      int last = share.last - base > count ? count : share.last - base;
      fine_product(*parts[i], in, b_.num_rows, first, last,
                   [&](int panel, int row, vf sums, bool is_second) {
                     float* to = qkv_ + (size_t)row * qkv_size_ + offsets[i] + panel * LANES;
                     store(to, is_second ? load(to) + sums : sums);
                   });
    }
    team.barrier();
    attend_all(layer, me, team);
    add_to_residual(layer.output, wide_input(query_in_, query_size_, me, team), me, team);
  }

  void attend_all(const Layer& layer, int me, Team& team) {
    FLM_TIMED(ATTENTION);
    const Pages pages{layer.keys, layer.values, m_.num_kv_heads, m_.head_dim, m_.kv_format};
    if (!groups_.empty()) {  // all before anyone looks at them
      each(groups_.size(), me, team, [&](int i) {
        for (int h = 0; h < m_.num_kv_heads; h++) write(layer, pages, groups_[i], h);
      });
    }
    for (size_t i = me; i < items_.size(); i += team.size()) {
      const Item& item = items_[i];
      if (item.writes) write(layer, pages, {item.run, item.run->first, 1}, item.kv_head);
      attend(layer, pages, item);
    }
    team.barrier();
    if (!merges_.empty())
      each(merges_.size(), me, team, [&](int i) { merge_partials(merges_[i]); });
  }

  void rotate(float* head, int row) const {
    const int half = m_.head_dim / 2;
    const float *c = b_.cosines + (size_t)row * half, *s = b_.sines + (size_t)row * half;
    int i = 0;
    for (; i + LANES <= half; i += LANES) {
      vf a = load(head + i), b = load(head + i + half), cosine = load(c + i), sine = load(s + i);
      store(head + i, a * cosine - b * sine);
      store(head + i + half, b * cosine + a * sine);
    }
    for (; i < half; i++) {
      float a = head[i], b = head[i + half];
      head[i] = a * c[i] - b * s[i];
      head[i + half] = b * c[i] + a * s[i];
    }
  }

  // Rotates the keys of one head and writes keys and values to their page.
  void write(const Layer& layer, const Pages& pages, const Group& group, int h) {
    const int dim = m_.head_dim, position = group.run->start + group.row - group.run->first;
    float* keys = qkv_ + (size_t)group.row * qkv_size_ + query_size_ + h * dim;
    for (int i = 0; i < group.count; i++) {
      float* key = keys + (size_t)i * qkv_size_;
      if (layer.key_norm != nullptr) norm(key, layer.key_norm, dim, key);
      rotate(key, group.row + i);
    }
    write_group(pages, group.run->table[position / PAGE], h, position % PAGE, group.count, keys,
                keys + kv_size_, qkv_size_);
  }

  // A head's query, rotated and times query_scale.
  void query(const Layer& layer, int row, int head, float* q) const {
    const int dim = m_.head_dim;
    const float scale = query_scale(dim);
    std::memcpy(q, qkv_ + (size_t)row * qkv_size_ + head * dim, dim * sizeof(float));
    if (layer.query_norm != nullptr) norm(q, layer.query_norm, dim, q);
    rotate(q, row);
    for (int d = 0; d < dim; d += LANES) store(q + d, load(q + d) * scale);
  }

  int most_queries() const {
#if defined(FLM_TILES)
    if (has_tiles_) return TileQueries::CAPACITY;
#endif
    return m_.kv_format == BRAIN ? BrainQueries::CAPACITY : ByteQueries::CAPACITY;
  }

  void attend(const Layer& layer, const Pages& pages, const Item& item) {
    // There are few models with more heads that share keys.
    for (int g = 0; g < group_; g += most_queries()) {
      const int heads = std::min(group_ - g, most_queries());
#if defined(FLM_TILES)
      if (has_tiles_) {
        attend<TileQueries>(layer, pages, item, g, heads);
        continue;
      }
#endif
      if (m_.kv_format == BRAIN)
        attend<BrainQueries>(layer, pages, item, g, heads);
      else
        attend<ByteQueries>(layer, pages, item, g, heads);
    }
  }

  // The heads `first` to first + heads - 1 of those that share the item's keys.
  template <typename Queries>
  void attend(const Layer& layer, const Pages& pages, const Item& item, int first, int heads) {
    const int dim = m_.head_dim, count = item.count * heads;
    Queries q;
    float o[Queries::CAPACITY * MAX_HEAD_DIM] __attribute__((aligned(64)));
    float o_part[Queries::CAPACITY * MAX_HEAD_DIM] __attribute__((aligned(64)));
    Partial whole[Queries::CAPACITY], part[Queries::CAPACITY];
    int positions[Queries::CAPACITY];
    for (int n = 0; n < count; n++) {
      const Member& member = members_[item.first + n / heads];
      query(layer, member.row, item.kv_head * group_ + first + n % heads, o);
      q.set(n, o, dim);
      positions[n] = member.position;
      whole[n].o = o + n * dim;
      part[n].o = o_part + n * dim;
    }
    for (int p = item.part; p < item.part + item.num_parts; p++) {
      int limits[Queries::CAPACITY];
      for (int n = 0; n < count; n++) {
        int seen = positions[n] + 1 - p * PART;
        limits[n] = seen < 0 ? 0 : seen > PART ? PART : seen;
      }
      const bool is_first = p == item.part;
      attend_queries(q, count, pages, item.run->table + p * PART_PAGES, item.kv_head, limits,
                     is_first ? whole : part);
      for (int n = 0; n < count && !is_first; n++)
        if (limits[n] > 0) merge(whole[n], part[n], dim);
    }
    for (int n = 0; n < count; n++) {
      const Member& member = members_[item.first + n / heads];
      const int own = first + n % heads;
      if (member.partial < 0)
        finish(whole[n], member.row, item.kv_head * group_ + own);
      else
        keep(whole[n], member.partial * group_ + own);
    }
  }

  void keep(const Partial& result, int place) {
    float* o = partial_o_ + (size_t)place * m_.head_dim;
    std::memcpy(o, result.o, m_.head_dim * sizeof(float));
    partials_[place] = {result.top, result.sum, o};
  }

  void finish(const Partial& result, int row, int head) {
    float* out = wide_ + (size_t)row * query_size_ + head * m_.head_dim;
    const float scale = 1.0f / result.sum;
    for (int d = 0; d < m_.head_dim; d += LANES) store(out + d, load(result.o + d) * scale);
  }

  void merge_partials(const Merge& of) {
    for (int g = 0; g < group_; g++) {
      Partial whole = partials_[of.partial * group_ + g];
      for (int p = 1; p < of.num_parts; p++)
        merge(whole, partials_[(of.partial + p) * group_ + g], m_.head_dim);
      finish(whole, of.row, of.kv_head * group_ + g);
    }
  }

  void add_to_residual(const Matrix& matrix, const Rows& in, int me, Team& team) {
    Share share(matrix.num_panels(), me, team.size());
    product(matrix, in, share.first, share.last, [&](int panel, int row, vf sums) {
      float* to = x_ + (size_t)row * m_.hidden + panel * LANES;
      store(to, load(to) + sums);
    });
    team.barrier();
  }

  void mlp(const Layer& layer, int me, Team& team) {
    Rows in = normed_input(hidden_in_, 1, layer.mlp_norm, me, team);
    Share share(layer.gate.num_panels(), me, team.size());
    product(layer.gate, in, share.first, share.last, [&](int panel, int row, vf sums) {
      store(wide_ + (size_t)row * m_.inner + panel * LANES, vsilu(sums));
    });
    product(layer.up, in, share.first, share.last, [&](int panel, int row, vf sums) {
      float* to = wide_ + (size_t)row * m_.inner + panel * LANES;
      store(to, load(to) * sums);
    });
    team.barrier();
    add_to_residual(layer.down, wide_input(inner_in_, m_.inner, me, team), me, team);
  }

  void logits(int me, Team& team) {
    if (b_.num_logits == 0) return;
    FLM_TIMED(HEAD);
    std::vector<float> normed(m_.hidden);
    each(b_.num_logits, me, team, [&](int i) {
      norm(x_ + (size_t)b_.logit_rows[i] * m_.hidden, m_.norm, m_.hidden, normed.data());
      quantise_row(normed.data(), m_.hidden, logits_in_, i * 2, true);
    });
    Share share(m_.head.num_panels(), me, team.size());
    fine_product(m_.head, logits_in_, b_.num_logits, share.first, share.last,
                 [&](int panel, int row, vf sums, bool is_second) {
                   float* to = b_.logits + (size_t)row * m_.vocab + panel * LANES;
                   int left = m_.vocab - panel * LANES;
                   float own[LANES] = {};
                   const bool is_whole = left >= LANES;
                   if (is_second) {
                     if (!is_whole) std::memcpy(own, to, left * sizeof(float));
                     sums += load(is_whole ? to : own);
                   }
                   store(is_whole ? to : own, sums);
                   if (!is_whole) std::memcpy(to, own, left * sizeof(float));
                 });
  }

  const Model& m_;
  const Batch& b_;
  int group_, query_size_, kv_size_, qkv_size_, tile_rows_, copies_, num_partials_ = 0;
  bool has_tiles_;
  std::vector<Run> runs_;
  std::vector<Item> items_;
  std::vector<Member> members_;
  std::vector<Merge> merges_;
  std::vector<Group> groups_;
  float *x_, *qkv_, *wide_, *partial_o_;
  Rows attention_in_, hidden_in_, query_in_, inner_in_, logits_in_;
  Partial* partials_;
};

}  // namespace

extern "C" {

// 0, or 1 when memory for the rows between the layers could not be had.
int flm_forward(const Model* model, const Batch* batch) {
  try {
    Forward forward(*model, *batch);
    size_t bytes = forward.scratch_bytes();
    void* scratch = std::aligned_alloc(64, (bytes + 127) / 64 * 64);
    if (scratch == nullptr) return 1;
    char* at = (char*)scratch;
    forward.lay_out(at);
    together(model->num_threads, [&](int me, Team& team) { forward.run(me, team); });
    std::free(scratch);
    return 0;
  } catch (const std::bad_alloc&) {
    return 1;
  }
}

// out[num_rows, num_out] = x[num_rows, num_in] times the matrix: a product alone.
int flm_linear(const Matrix* matrix, const float* x, int num_rows, float* out, int num_threads) {
  int blocks = matrix->num_blocks();
  std::vector<int8_t> quants((size_t)num_rows * blocks * BLOCK);
  std::vector<float> scales((size_t)num_rows * blocks * 2), sums((size_t)num_rows * blocks);
  std::vector<int32_t> offsets(scales.size());
  Rows rows{quants.data(), scales.data(), sums.data(), offsets.data(), blocks};
  for (int r = 0; r < num_rows; r++)
    quantise_row(x + (size_t)r * matrix->num_in, matrix->num_in, rows, r);
  together(num_threads, [&](int me, Team& team) {
    Share share(matrix->num_panels(), me, team.size());
    multiply(*matrix, rows, num_rows, share.first, share.last, [&](int panel, int row, vf v) {
      int left = matrix->num_out - panel * LANES;
      std::memcpy(out + (size_t)row * matrix->num_out + panel * LANES, &v,
                  (left < LANES ? left : LANES) * sizeof(float));
    });
  });
  return 0;
}

// out[num_rows, num_out] = x[num_rows, num_in] times weights that are not packed, plus the bias.
void flm_product(const float* weights, const float* bias, int num_out, int num_in, const float* x,
                 int num_rows, float* out, int num_threads) {
  multiply(Product{weights, bias, num_out, num_in}, x, num_rows, out, num_threads);
}

// The `wanted` best of each row, best first, the lower id among equals. usable[row] is 0, and the
// row's places are left alone, where a value is NaN or plus infinity, or all are minus infinity.
int flm_best(const float* values, int num_rows, int count, int wanted, float* best, int32_t* ids,
             uint8_t* usable) {
  try {
    Best selection(wanted);
    for (int row = 0; row < num_rows; row++) {
      const float* own = values + (size_t)row * count;
      usable[row] = !has_no_number(own, count);
      if (!usable[row]) continue;
      const auto& found = selection.of(own, count);
      usable[row] = found[0].value > -INFINITY;
      for (int i = 0; i < wanted; i++) {
        best[(size_t)row * wanted + i] = found[i].value;
        ids[(size_t)row * wanted + i] = found[i].id;
      }
    }
    return 0;
  } catch (const std::bad_alloc&) {
    return 1;
  }
}

// 1 where every value is a number or minus infinity.
void flm_are_numbers(const float* values, int num_rows, int count, uint8_t* numbers) {
  for (int row = 0; row < num_rows; row++)
    numbers[row] = !has_no_number(values + (size_t)row * count, count);
}

void flm_rule_out(float* values, int count, const uint8_t* mask, int mask_bytes) {
  rule_out(values, count, mask, mask_bytes);
}

void flm_read_row(const Matrix* matrix, int row, float* out) { read_row(*matrix, row, out); }

}
