// Rows as the decoder packed them to the columns of a table, read where they are.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <utility>
#include <vector>

#include "../../formats/lineprotocol/kernel/scan.hpp"
#include "columns.hpp"

namespace ccpipe {

constexpr int64_t DAY = 86'400'000'000'000;

// Divide towards minus infinity, as times before the epoch need it.
inline int64_t floor_divide(int64_t number, int64_t by) {
    int64_t whole = number / by;
    return whole - (number % by < 0);
}

inline void clear_bit(uint8_t* bits, size_t place) { bits[place >> 3] &= ~(1 << (place & 7)); }

// The rows of some payloads, one after another, of one series table.
class Batch {
public:
    struct Part {
        const Row* rows;
        size_t count;
    };
    struct Key {
        int32_t cluster;  // its number, -1 for none
        int64_t day;      // since the epoch, NO_TIME for none
    };

    std::vector<Part> parts;
    size_t size = 0;
    std::vector<Key> keys;                   // of the groups, in the order in which they came
    std::vector<std::vector<int64_t>> rows;  // of each group; empty where there is only one

    void add(const Row* rows, size_t count) {
        parts.push_back({rows, count});
        size += count;
    }

    // Call `use` with place, row and part of all rows, or of those with some numbers that ascend.
    template <class Use>
    void each(const int64_t* chosen, size_t count, Use use) const {
        size_t part = 0, begin = 0;
        if (!chosen) {
            for (size_t place = 0; part < parts.size(); begin += parts[part++].count)
                for (; place < begin + parts[part].count; ++place)
                    use(place, parts[part].rows[place - begin], part);
            return;
        }
        for (size_t place = 0; place < count; ++place) {
            size_t row = chosen[place];
            while (row - begin >= parts[part].count) begin += parts[part++].count;
            use(place, parts[part].rows[row - begin], part);
        }
    }

    // Find the groups of rows that have cluster and day in common.
    void split(const KnownSeries& known) {
        std::map<std::pair<int32_t, int64_t>, size_t> groups;
        int64_t begin = 1, end = 0;  // of the last row's day
        int32_t last = -1;
        size_t group = 0;
        each(nullptr, size, [&](size_t place, const Row& row, size_t) {
            int32_t cluster = known.of(row.series).names[CLUSTER];
            if (cluster != last || row.time < begin || row.time >= end || keys.empty()) {
                int64_t day = row.time == NO_TIME ? NO_TIME : floor_divide(row.time, DAY);
                group = groups.try_emplace({cluster, day}, keys.size()).first->second;
                if (group == keys.size()) add_group({cluster, day}, place);
                // The first and last days of 64 bits are not whole: they are looked up each time.
                bool is_whole = -106'000 < day && day < 106'000;
                begin = is_whole ? day * DAY : 1;
                end = is_whole ? begin + DAY : 0;
                last = cluster;
            }
            if (!rows.empty()) rows[group].push_back(static_cast<int64_t>(place));
        });
    }

private:
    void add_group(const Key& key, size_t rows_before) {
        keys.push_back(key);
        if (keys.size() == 1) return;
        if (keys.size() == 2) {
            rows.emplace_back();
            for (size_t row = 0; row < rows_before; ++row)
                rows[0].push_back(static_cast<int64_t>(row));
        }
        rows.emplace_back();
    }
};

// The rows of one group as columns, whose dictionaries hold only what these rows have.
class Table {
public:
    // `chosen` are the numbers of the rows, or null for all.
    Table(const Batch& batch, const KnownSeries& known, const int64_t* chosen, size_t size)
        : size(size), batch_(batch), known_(known), chosen_(chosen), slots_(size) {
        for (int column = 0; column < CLUSTER; ++column) names.emplace_back(known.columns[column]);
    }

    size_t size;
    std::vector<NameColumn> names;
    size_t missing[CLUSTER] = {};  // rows without a name, in each column
    std::vector<int32_t> fields;   // that are used, in the order of their numbers here
    unsigned types = 0;            // of the values, as bits
    size_t untimed = 0, texts = 0;
    size_t pairs = 0;  // tags that have no column, of all rows

    // Read the rows into columns that every table has; false where a field has no number.
    bool read(size_t series, size_t field_count, int64_t* micros, int16_t* beyond, double* values,
              int32_t* field_numbers) {
        std::vector<int32_t> slot_of(series, -1), number_of(field_count, -1);
        int64_t last = NO_TIME, micro = 0;
        bool is_good = true;
        batch_.each(chosen_, size, [&](size_t place, const Row& row, size_t) {
            int32_t& slot = slot_of[row.series];
            if (slot < 0) slot = add_slot(row.series);
            slots_[place] = slot;
            ++in_group_[slot].rows;
            if (row.time != last) {
                last = row.time;
                micro = last == NO_TIME ? 0 : floor_divide(last, 1000);
            }
            untimed += last == NO_TIME;
            micros[place] = micro;
            beyond[place] = last == NO_TIME ? 0 : static_cast<int16_t>(last - micro * 1000);
            values[place] = row.number;
            types |= 1u << row.type;
            texts += row.type == TEXT;
            if (static_cast<size_t>(row.field) >= field_count) {
                is_good = false;
                return;
            }
            int32_t& number = number_of[row.field];
            if (number < 0) {
                number = static_cast<int32_t>(fields.size());
                fields.push_back(row.field);
            }
            field_numbers[place] = number;
        });
        for (const Slot& slot : in_group_) {
            for (int column = 0; column < CLUSTER; ++column)
                if (slot.names[column] < 0) missing[column] += slot.rows;
            const Series& its = known_.series[slot.place];
            pairs += size_t{slot.rows} * (its.tags_end - its.tags);
        }
        return is_good;
    }

    // Write the numbers of names, and clear the bits of rows without one where `valid` is given.
    void write_names(int column, int32_t* numbers, uint8_t* valid) const {
        for (size_t place = 0; place < size; ++place) {
            int32_t number = in_group_[slots_[place]].names[column];
            numbers[place] = number < 0 ? 0 : number;
        }
        if (!valid) return;
        for (size_t place = 0; place < size; ++place)
            if (in_group_[slots_[place]].names[column] < 0) clear_bit(valid, place);
    }

    // Write where the other tags of each row begin and end, and their keys and values.
    void write_tags(int32_t* places, Texts& keys, Texts& values) const {
        places[0] = 0;
        for (size_t place = 0; place < size; ++place) {
            const Series& its = known_.series[in_group_[slots_[place]].place];
            if (its.tags < its.tags_end) {
                keys.add(known_.keys, its.tags, its.tags_end);
                values.add(known_.values, its.tags, its.tags_end);
            }
            places[place + 1] = static_cast<int32_t>(keys.ends.size());
        }
    }

    void clear_untimed(uint8_t* valid) const {
        batch_.each(chosen_, size, [&](size_t place, const Row& row, size_t) {
            if (row.time == NO_TIME) clear_bit(valid, place);
        });
    }

    // Clear the bits of rows whose values are of a type, or of any but that; return how many.
    size_t clear_type(int type, bool is_that, uint8_t* valid) const {
        size_t cleared = 0;
        batch_.each(chosen_, size, [&](size_t place, const Row& row, size_t) {
            if ((row.type == type) != is_that) return;
            clear_bit(valid, place);
            ++cleared;
        });
        return cleared;
    }

    void write_exact(int64_t* numbers) const {
        batch_.each(chosen_, size, [&](size_t place, const Row& row, size_t) {
            numbers[place] = row.exact;
        });
    }

    // Clear the bits of what is not true.
    void write_booleans(uint8_t* bits) const {
        batch_.each(chosen_, size, [&](size_t place, const Row& row, size_t) {
            if (!row.exact) clear_bit(bits, place);
        });
    }

    // Of each row, in order, its part and the number of its text there; -1 where it has none.
    std::vector<std::pair<size_t, int64_t>> text_numbers() const {
        std::vector<std::pair<size_t, int64_t>> found(size);
        batch_.each(chosen_, size, [&](size_t place, const Row& row, size_t part) {
            found[place] = {part, row.type == TEXT ? row.exact : -1};
        });
        return found;
    }

private:
    struct Slot {
        int32_t names[CLUSTER];  // their numbers in the dictionaries of this table, -1 for none
        int32_t place;           // among the known series
        uint32_t rows;
    };

    int32_t add_slot(int32_t series) {
        Slot next;
        next.place = known_.places[series];
        next.rows = 0;
        const Series& its = known_.series[next.place];
        for (int column = 0; column < CLUSTER; ++column)
            next.names[column] =
                its.names[column] < 0 ? -1 : names[column].number(its.names[column]);
        in_group_.push_back(next);
        return static_cast<int32_t>(in_group_.size()) - 1;
    }

    const Batch& batch_;
    const KnownSeries& known_;
    const int64_t* chosen_;
    std::vector<int32_t> slots_;  // of each row that of its series
    std::vector<Slot> in_group_;  // series of these rows
};

}  // namespace ccpipe
