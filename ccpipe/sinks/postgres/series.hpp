// Series as rows of PostgreSQL's binary COPY.
#pragma once

#include <endian.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "../../formats/lineprotocol/kernel/parts.hpp"
#include "blake2b.hpp"

namespace ccpipe {

constexpr size_t DIGEST = 16;

// Writes rows of place, key, name, field, six tags with a column each, and the other tags as JSON.
class SeriesRows {
public:
    SeriesRows() : out_("PGCOPY\n\xff\r\n\0\0\0\0\0\0\0\0\0", 19), size_(19) {}

    // Take name and tags of a canonical encoding; false where that has escapes.
    bool take(const char* key, size_t size) {
        clear();
        return take_apart(
            key, size, [this](const char* text, size_t length) { name(text, length); },
            [this](const char* k, size_t k_size, const char* v, size_t v_size) {
                tag(k, k_size, v, v_size);
            });
    }

    void name(const char* text, size_t size) { name_ = {text, size}; }

    void tag(const char* key, size_t key_size, const char* value, size_t value_size) {
        static const Cell columns[TAGS] = {{"cluster", 7}, {"hostname", 8}, {"type", 4},
                                           {"type-id", 7}, {"stype", 5},    {"stype-id", 8}};
        for (int column = 0; column < TAGS; ++column) {
            const Cell& known = columns[column];
            if (known.size == key_size && std::memcmp(known.text, key, key_size) == 0) {
                tags_[column] = {value, value_size};
                return;
            }
        }
        others_.push_back({{key, key_size}, {value, value_size}});
    }

    // Write the row of what was taken.
    void write(int32_t place, const char* digest, const char* field, size_t field_size) {
        reserve(field_size);
        put16(TAGS + 5);
        put32(4);
        put32(place);
        cell({digest, DIGEST});
        cell(name_);
        cell({field, field_size});
        for (const Cell& tag : tags_) {
            if (tag.text)
                cell(tag);
            else
                put32(-1);
        }
        json();
    }

    // End the rows; they stay valid until the next call.
    const char* end(size_t& size) {
        out_.resize(std::max(out_.size(), size_ + 2));
        put16(-1);
        size = size_;
        return out_.data();
    }

private:
    static constexpr int TAGS = 6;
    struct Cell {
        const char* text;
        size_t size;
    };

    void clear() {
        name_ = {nullptr, 0};
        std::fill(tags_, tags_ + TAGS, Cell{nullptr, 0});
        others_.clear();
    }

    // Make room for a row: lengths, and texts of which JSON makes six bytes for one at most.
    void reserve(size_t field_size) {
        size_t needed = 2 + 4 * (TAGS + 6) + DIGEST + name_.size + field_size + 3;
        for (const Cell& tag : tags_) needed += tag.size;
        for (const auto& [key, value] : others_) needed += 6 + 6 * (key.size + value.size);
        if (size_ + needed > out_.size()) out_.resize(std::max(2 * out_.size(), size_ + needed));
    }

    void put(const char* bytes, size_t size) {
        std::memcpy(&out_[size_], bytes, size);
        size_ += size;
    }

    void put16(int value) {
        uint16_t big = htobe16(static_cast<uint16_t>(value));
        put(reinterpret_cast<char*>(&big), 2);
    }

    void put32(int32_t value) {
        uint32_t big = htobe32(static_cast<uint32_t>(value));
        put(reinterpret_cast<char*>(&big), 4);
    }

    void cell(const Cell& text) {
        put32(static_cast<int32_t>(text.size));
        put(text.text, text.size);
    }

    void json() {
        size_t begin = size_;
        put32(0);
        put("\1{", 2);  // the version of a jsonb
        for (const auto& [key, value] : others_) {
            quoted(key);
            put(":", 1);
            quoted(value);
            put(",", 1);
        }
        if (!others_.empty()) --size_;
        put("}", 1);
        uint32_t length = htobe32(static_cast<uint32_t>(size_ - begin - 4));
        std::memcpy(&out_[begin], &length, 4);
    }

    void quoted(const Cell& cell) {
        static const char digits[] = "0123456789abcdef";
        char* at = &out_[size_];
        *at++ = '"';
        for (size_t i = 0; i < cell.size; ++i) {
            auto c = static_cast<unsigned char>(cell.text[i]);
            if (8 <= c && c <= 13 && c != 11) {
                *at++ = '\\';
                *at++ = "btn.fr"[c - 8];
            } else if (c < 0x20) {
                std::memcpy(at, "\\u00", 4);
                at[4] = digits[c >> 4];
                at[5] = digits[c & 15];
                at += 6;
            } else {
                if (c == '"' || c == '\\') *at++ = '\\';
                *at++ = cell.text[i];
            }
        }
        *at++ = '"';
        size_ = at - out_.data();
    }

    std::string out_;  // of which the first `size_` bytes are written
    size_t size_;
    Cell name_{nullptr, 0};
    Cell tags_[TAGS];
    std::vector<std::pair<Cell, Cell>> others_;
};

}  // namespace ccpipe
