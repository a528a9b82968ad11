// The columns of plain accounting lines, in Arrow's memory layout.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <new>

namespace ccpipe::gridengine {

// A growing buffer; bytes beyond the end are not initialized.
class Bytes {
public:
    Bytes() = default;
    Bytes(Bytes&& other) noexcept { std::swap(data_, other.data_); }
    ~Bytes() { std::free(data_); }

    const char* data() const { return data_; }

    // Put `count` bytes at `size`; up to `readable` bytes of the source may be read.
    void put(size_t size, const char* from, size_t count, size_t readable) {
        if (capacity_ - size < count + SHORT || !data_) grow(size + count + SHORT);
        if (count <= SHORT && readable >= SHORT)
            std::memcpy(data_ + size, from, SHORT);  // of a constant length: one instruction
        else
            std::memcpy(data_ + size, from, count);
    }

private:
    static constexpr size_t SHORT = 16;
    char* data_ = nullptr;
    size_t capacity_ = 0;

    void grow(size_t least) {
        size_t capacity = std::max(2 * capacity_, least + 4096);
        auto data = static_cast<char*>(std::realloc(data_, capacity));
        if (!data) throw std::bad_alloc();
        data_ = data;
        capacity_ = capacity;
    }
};

enum Type : uint8_t { INTEGERS, DOUBLES, TEXTS };

// One column. Its memory, except the bytes of texts, is the caller's and large enough.
class Column {
public:
    size_t rows = 0, nulls = 0;
    Bytes bytes;

    // A missing value is null, or else 0 or "".
    Column(Type type, bool is_null_when_missing, void* values, uint8_t* valid, size_t most)
        : values_(values), valid_(valid), type_(type), is_null_(is_null_when_missing) {
        std::memset(valid_, 0xFF, (most + 7) / 8);
        if (type_ == TEXTS) ends()[0] = 0;
    }

    size_t size() const { return type_ == TEXTS ? ends()[rows] : 0; }  // bytes of all texts

    void integer(int64_t value) { static_cast<int64_t*>(values_)[rows++] = value; }
    void number(double value) { static_cast<double*>(values_)[rows++] = value; }
    void text(const char* from, size_t count, size_t readable) {
        size_t before = size();
        bytes.put(before, from, count, readable);
        ends()[++rows] = static_cast<int32_t>(before + count);
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
