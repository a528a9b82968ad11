// The columns of plain accounting lines, in Arrow's memory layout.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>

namespace ccpipe::gridengine {

enum Type : uint8_t { INTEGERS, DOUBLES, TEXTS };

// One column. Its memory, except the bytes of texts, is the caller's and large enough.
class Column {
public:
    size_t rows = 0, nulls = 0;
    std::string bytes;

    // A missing value is null, or else 0 or "".
    Column(Type type, bool is_null_when_missing, void* values, uint8_t* valid, size_t most)
        : values_(values), valid_(valid), type_(type), is_null_(is_null_when_missing) {
        std::memset(valid_, 0xFF, (most + 7) / 8);
        if (type_ == TEXTS) ends()[0] = 0;
    }

    void integer(int64_t value) { static_cast<int64_t*>(values_)[rows++] = value; }
    void number(double value) { static_cast<double*>(values_)[rows++] = value; }
    void text(const char* from, size_t count) {
        bytes.append(from, count);
        ends()[++rows] = static_cast<int32_t>(bytes.size());
    }
    void null() {
        valid_[rows / 8] &= static_cast<uint8_t>(~(1u << rows % 8));
        ++nulls;
        blank();
    }
    void missing() { is_null_ ? null() : blank(); }

    // Remove the last row.
    void undo() {
        --rows;
        auto bit = static_cast<uint8_t>(1u << rows % 8);
        nulls -= !(valid_[rows / 8] & bit);
        valid_[rows / 8] |= bit;
        if (type_ == TEXTS) bytes.resize(ends()[rows]);
    }

private:
    void* values_;
    uint8_t* valid_;
    Type type_;
    bool is_null_;

    int32_t* ends() const { return static_cast<int32_t*>(values_); }  // the first is 0

    void blank() {
        if (type_ == TEXTS) {
            ends()[rows + 1] = ends()[rows];
            ++rows;
        } else {
            integer(0);  // the bits of 0.0 too
        }
    }
};

}  // namespace ccpipe::gridengine
