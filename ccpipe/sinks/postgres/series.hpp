// Series as rows of PostgreSQL's binary COPY.
#pragma once

#include <endian.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>

#include "../../formats/lineprotocol/kernel/parts.hpp"

namespace ccpipe {

// Writes rows of place, key, name, field, six tags with a column each, and the other tags as JSON.
class SeriesRows {
public:
    std::string out;

    void begin(const char* key, size_t size) {
        put16(TAGS + 5);
        put32(4);
        put32(place_++);
        cell(key, size);
        for (Cell& tag : tags_) tag = {nullptr, 0};
        others_.clear();
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
        others_ += others_.empty() ? '{' : ',';
        quoted(key, key_size);
        others_ += ':';
        quoted(value, value_size);
    }

    void end(const char* field, size_t size) {
        cell(name_.text, name_.size);
        cell(field, size);
        for (const Cell& tag : tags_) {
            if (tag.text)
                cell(tag.text, tag.size);
            else
                put32(-1);
        }
        others_ += others_.empty() ? "{}" : "}";
        put32(static_cast<int32_t>(others_.size() + 1));
        out += '\1';  // the version of a jsonb
        out += others_;
    }

    // Add name and tags of a canonical encoding; false where that has escapes.
    bool add(const char* key, size_t size) {
        return take_apart(
            key, size, [this](const char* text, size_t length) { name(text, length); },
            [this](const char* k, size_t k_size, const char* v, size_t v_size) {
                tag(k, k_size, v, v_size);
            });
    }

private:
    static constexpr int TAGS = 6;
    struct Cell {
        const char* text;
        size_t size;
    };

    void put16(int value) {
        uint16_t big = htobe16(static_cast<uint16_t>(value));
        out.append(reinterpret_cast<char*>(&big), 2);
    }

    void put32(int32_t value) {
        uint32_t big = htobe32(static_cast<uint32_t>(value));
        out.append(reinterpret_cast<char*>(&big), 4);
    }

    void cell(const char* text, size_t size) {
        put32(static_cast<int32_t>(size));
        out.append(text, size);
    }

    void quoted(const char* text, size_t size) {
        static const char digits[] = "0123456789abcdef";
        others_ += '"';
        for (size_t i = 0; i < size; ++i) {
            auto c = static_cast<unsigned char>(text[i]);
            if (c == '"' || c == '\\') {
                others_ += '\\';
                others_ += text[i];
            } else if (c < 0x20) {
                others_ += "\\u00";
                others_ += digits[c >> 4];
                others_ += digits[c & 15];
            } else {
                others_ += text[i];
            }
        }
        others_ += '"';
    }

    int32_t place_ = 0;
    Cell name_{nullptr, 0};
    Cell tags_[TAGS];
    std::string others_;
};

}  // namespace ccpipe
