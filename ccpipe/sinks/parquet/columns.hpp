// What the series of a table mean, in columns: each series is taken apart once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "../../formats/lineprotocol/kernel/index.hpp"
#include "../../formats/lineprotocol/kernel/parts.hpp"

namespace ccpipe {

enum Column { NAME, HOSTNAME, TYPE, TYPE_ID, STYPE, STYPE_ID, CLUSTER, COLUMNS };

// The column of a tag, or COLUMNS where it has none.
inline int column_of(const char* key, size_t size) {
    auto is = [=](const char* name) { return std::memcmp(key, name, size) == 0; };
    switch (size) {
        case 4: return is("type") ? TYPE : COLUMNS;
        case 5: return is("stype") ? STYPE : COLUMNS;
        case 7: return is("type-id") ? TYPE_ID : is("cluster") ? CLUSTER : COLUMNS;
        case 8: return is("hostname") ? HOSTNAME : is("stype-id") ? STYPE_ID : COLUMNS;
        default: return COLUMNS;
    }
}

// The values of a column, numbered in the order in which they came.
class Names {
public:
    explicit Names(const Seed& seed) : index_(seed) {}

    int32_t number(const char* text, size_t size) {
        if (last_ >= 0 && index_.size(last_) == size &&
            std::memcmp(index_.key(last_), text, size) == 0)
            return last_;
        last_ = index_.find(text, size);
        if (last_ < 0) last_ = index_.add(text, size, 0);
        return last_;
    }

    const char* text(int32_t number, size_t& size) const {
        size = index_.size(number);
        return index_.key(number);
    }

    size_t size() const { return index_.entries(); }

private:
    Index index_;
    int32_t last_ = -1;
};

// Texts one after another, as Arrow has them.
struct Texts {
    std::string bytes;
    std::vector<int32_t> ends;

    void add(const char* text, size_t size) {
        bytes.append(text, size);
        ends.push_back(static_cast<int32_t>(bytes.size()));
    }

    // Add some texts of others.
    void add(const Texts& others, size_t first, size_t last) {
        for (; first < last; ++first) {
            size_t begin = first ? others.ends[first - 1] : 0;
            add(others.bytes.data() + begin, others.ends[first] - begin);
        }
    }
};

struct Series {
    int32_t names[COLUMNS];  // their numbers, -1 for none
    uint32_t tags, tags_end;  // places of its other tags
};

class SeriesColumns {
public:
    explicit SeriesColumns(const Seed& seed) {
        columns.reserve(COLUMNS);
        for (int column = 0; column < COLUMNS; ++column) columns.emplace_back(seed);
    }

    std::vector<Names> columns;
    std::vector<Series> series;
    Texts keys, values;  // of the tags that have no column

    // Begin a series by its name; its tags follow.
    void begin(const char* name, size_t size) {
        Series next;
        for (int32_t& number : next.names) number = -1;
        next.names[NAME] = columns[NAME].number(name, size);
        next.tags = next.tags_end = static_cast<uint32_t>(keys.ends.size());
        series.push_back(next);
    }

    void tag(const char* key, size_t key_size, const char* value, size_t value_size) {
        int column = column_of(key, key_size);
        if (column < COLUMNS) {
            series.back().names[column] = columns[column].number(value, value_size);
            return;
        }
        keys.add(key, key_size);
        values.add(value, value_size);
        ++series.back().tags_end;
    }

    // Add a series by its canonical encoding; false where that has escapes.
    bool add(const char* key, size_t size) {
        return take_apart(
            key, size, [this](const char* name, size_t length) { begin(name, length); },
            [this](const char* k, size_t k_size, const char* v, size_t v_size) {
                tag(k, k_size, v, v_size);
            });
    }
};

// The series of one table that were met, by their numbers there.
class KnownSeries : public SeriesColumns {
public:
    using SeriesColumns::SeriesColumns;

    std::vector<int32_t> places;  // of each series among ``series``; -1 where it was not met

    const Series& of(int32_t number) const { return series[places[number]]; }

    // Note that the series that was added last has a number.
    void note(int32_t number) { places[number] = static_cast<int32_t>(series.size()) - 1; }

    // The first row from `row` on whose series is not known, or `count`.
    template <class Row>
    size_t first_unknown(const Row* rows, size_t row, size_t count) const {
        for (; row < count; ++row)
            if (static_cast<size_t>(rows[row].series) >= places.size() ||
                places[rows[row].series] < 0)
                break;
        return row;
    }
};

// A column of names for some rows, its dictionary only of what these rows have.
class NameColumn {
public:
    NameColumn(const Names& names) : names_(names), numbers_(names.size(), -1) {}

    Texts dictionary;

    int32_t number(int32_t name) {
        int32_t& number = numbers_[name];
        if (number < 0) {
            size_t size = 0;
            const char* text = names_.text(name, size);
            number = static_cast<int32_t>(dictionary.ends.size());
            dictionary.add(text, size);
        }
        return number;
    }

private:
    const Names& names_;
    std::vector<int32_t> numbers_;
};

}  // namespace ccpipe
