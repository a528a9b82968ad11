// Plain lines of accounting to columns, fast: what `_kernel.pyx` drives.
//
// It reads the lines that Grid Engine and OCS usually write: 45 or 43 fields, with or without colons
// in the category, and JSON whose known keys are in the writer's order. All other lines are listed
// as odd, and the reader in Python, which is the specification, reads or rejects them. So nothing
// here rejects a line; what it reads must be what Python would read.
//
// All pointers lie in a buffer that ends in NUL, and every line that is looked at ends in LF.
#pragma once

#include <algorithm>
#include <charconv>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "../../lineprotocol/kernel/scan.hpp"
#include "columns.hpp"

namespace ccpipe::gridengine {

// The type of a field, and with it the spelling of a missing value.
enum Kind : uint8_t {
    TEXT,      // as written
    CATEGORY,  // empty where it is NONE or a hyphen
    NAMED,     // null where it is NONE
    FILLED,    // null where it is empty
    GIVEN,     // null where it is NONE or empty
    TASK,      // the same, and else it must look like 1.node07
    ACCT,      // the text "acct", which goes nowhere
    WHOLE,     // a whole number, not below 0
    SIGNED,
    SECONDS,   // of a time; null where it is 0
    MICROSECONDS,
    AMOUNT,    // a double
    OBJECT,    // with its own keys
};

struct Field {
    Kind kind;
    int32_t column;  // its column, or -1; for an OBJECT its number
};

struct Key {
    std::string text;  // with quotes and colon
    Field field;
    bool is_required;
};

struct Odd {
    int64_t row, line, start, end;  // rows and lines before it, and its place in the payload
};

constexpr size_t CATEGORY_AT = 39;      // fields before the category
constexpr size_t TAIL = 5;              // fields after it
constexpr size_t OLD_TAIL = TAIL - 2;   // the same in lines of 43 fields
constexpr int MANY_COLONS = 8;          // with so many in a category another record may begin
constexpr ptrdiff_t EXACT_DIGITS = 15;  // exact in every double

class Scan {
public:
    std::vector<Column> columns;
    std::vector<Field> classic;
    std::vector<std::vector<Key>> objects;  // the first is the line itself
    std::vector<std::string> variants;             // names: of 45 fields, of 43, of JSON
    int32_t variant = -1, line = -1, offset = -1;  // columns of these names, or -1
    std::vector<Odd> odd;
    size_t rows = 0;
    int64_t lines = 0;

    // Read a payload that begins with these numbers of line and offset.
    void run(const char* payload, size_t size, int64_t first_line, int64_t first_offset) {
        const char *stop = payload + size, *end;
        for (const char* p = payload; p < stop; p = end + 1, ++lines) {
            end = static_cast<const char*>(std::memchr(p, '\n', stop - p));
            bool is_whole = end != nullptr;
            if (!is_whole) end = stop;
            if (is_whole && (p == end || *p == '#')) continue;
            // 0xEF may begin a byte order mark, which is left to the reader in Python.
            if (is_whole && *p != '\xef' && is_utf8(p, end) && (*p == '{' ? json(p, end) : colons(p, end))) {
                put(line, first_line + lines);
                put(offset, first_offset + (p - payload));
                complete();
            } else {
                for (Column& column : columns)
                    if (column.rows > rows) column.undo();
                odd.push_back({static_cast<int64_t>(rows), lines, p - payload, end - payload});
            }
        }
    }

private:
    std::string unescaped_;

    void put(int32_t column, int64_t value) {
        if (column >= 0) columns[column].integer(value);
    }

    void complete() {
        ++rows;
        for (Column& column : columns)
            if (column.rows < rows) column.missing();
    }

    // Read a line of the classic format.
    bool colons(const char* p, const char* end) {
        for (size_t i = 0; i < CATEGORY_AT; ++i) {
            p = classic_field(p, end, classic[i]);
            if (!p || *p != ':') return false;
            ++p;
        }
        // The fields after the category contain no colons: find them from the end.
        const char* tail = end;
        size_t fields = 0;
        for (const char* q = end; fields < TAIL && q > p; )
            if (*--q == ':') tail = q, ++fields;
        bool is_old = fields == OLD_TAIL;
        if (!is_old && (fields < TAIL || std::count(p, tail, ':') >= MANY_COLONS)) return false;
        text(p, tail, classic[CATEGORY_AT]);
        for (size_t i = 0; i < fields; ++i) {
            tail = classic_field(tail + 1, end, classic[CATEGORY_AT + 1 + i]);
            if (!tail || (i + 1 < fields ? *tail != ':' : tail != end)) return false;
        }
        name_variant(is_old);
        return true;
    }

    void name_variant(size_t which) {
        if (variant < 0) return;
        const std::string& name = variants[which];
        columns[variant].text(name.data(), name.size());
    }

    // Read a field; returns where it ends, or null where Python must look.
    const char* classic_field(const char* p, const char* end, Field field) {
        if (is_number(field)) return number(p, end, field);
        const char* stop = colon(p, end);
        return text(p, stop, field) ? stop : nullptr;
    }

    static bool is_number(Field field) { return field.kind >= WHOLE; }

    // Where a field ends.
    static const char* colon(const char* p, const char* end) {
        constexpr uint64_t ones = 0x0101010101010101u;
        for (; end - p >= 8; p += 8) {
            uint64_t word = load64(p) ^ (ones * ':');
            uint64_t found = (word - ones) & ~word & (ones << 7);
            if (found) return p + __builtin_ctzll(found) / 8;
        }
        while (p < end && *p != ':') ++p;
        return p;
    }

    // Store a text, or return false if it is not of this kind.
    bool text(const char* p, const char* end, Field field) {
        size_t size = end - p;
        bool is_none = size == 4 && (!std::memcmp(p, "NONE", 4) || !std::memcmp(p, "none", 4));
        bool is_null = false;
        switch (field.kind) {
        case CATEGORY:
            if (is_none || (size == 1 && *p == '-')) size = 0;
            break;
        case NAMED:
            is_null = is_none;
            break;
        case FILLED:
            is_null = size == 0;
            break;
        case TASK:
            if (!is_none && size && !is_task(p, end)) return false;
            [[fallthrough]];
        case GIVEN:
            is_null = is_none || size == 0;
            break;
        case ACCT:
            return size == 4 && !std::memcmp(p, "acct", 4);
        default:
            break;
        }
        if (field.column < 0) return true;
        if (is_null)
            columns[field.column].null();
        else
            columns[field.column].text(p, size);
        return true;
    }

    // Digits, a dot and more, with a letter or underscore.
    static bool is_task(const char* p, const char* end) {
        const char* start = p;
        while (is_digit(*p)) ++p;
        if (p == start || *p != '.') return false;
        return std::any_of(p, end, [](char c) { return c == '_' || is_letter(c); });
    }

    static bool is_letter(char c) { return static_cast<unsigned char>((c | 0x20) - 'a') < 26; }

    // Read a JSON number; returns where it ends, or null where Python must look.
    const char* number(const char* p, const char* end, Field field) {
        const char* start = p;
        bool is_negative = *p == '-';
        p += is_negative;
        const char* first = p;
        uint64_t mantissa = 0;
        if (is_digit(*p) && !is_digit(p[1]))  // as half of all numbers are
            mantissa = *p++ - '0';
        else
            p = digits(p, end, mantissa);
        ptrdiff_t count = p - first;
        if (count == 0 || (*first == '0' && count > 1)) return nullptr;
        if (field.kind == AMOUNT) return amount(start, p, end, mantissa, count, field.column);
        return whole(is_negative, mantissa, count, field) ? p : nullptr;
    }

    bool whole(bool is_negative, uint64_t size, ptrdiff_t count, Field field) {
        uint64_t unit = 1;
        ptrdiff_t most = EXACT_DIGITS;
        if (field.kind == SECONDS) unit = 1000000000, most = 10;  // more digits are of another unit
        if (field.kind == MICROSECONDS) unit = 1000, most = 16;
        if (count > most || (is_negative && field.kind != SIGNED)) return false;
        if (unit > 1 && size >= uint64_t{INT64_MAX} / unit) return false;
        if (field.column < 0) return true;
        auto value = static_cast<int64_t>(size * unit);
        if (unit > 1 && value == 0)
            columns[field.column].null();
        else
            columns[field.column].integer(is_negative ? -value : value);
        return true;
    }

    // Continue at `p`, after the first `count` digits of a number that begins at `start`.
    const char* amount(const char* start, const char* p, const char* end, uint64_t mantissa,
                       ptrdiff_t count, int32_t column) {
        ptrdiff_t places = 0;
        if (*p == '.') {
            const char* point = p++;
            p = digits(p, end, mantissa);
            places = p - point - 1;
            if (places == 0) return nullptr;
            count += places;
        } else if (count > EXACT_DIGITS) {
            return nullptr;
        }
        bool has_exponent = (*p | 0x20) == 'e';
        double value = 0;
        bool is_short = !has_exponent && count <= 19;
        if (is_short && (column < 0 || nearest(mantissa, -places, value))) {
            if (*start == '-') value = -value;
        } else {
            auto [stop, error] = std::from_chars(start, end, value);
            if (error != std::errc() || (!has_exponent && stop != p)) return nullptr;
            p = stop;
        }
        if (column >= 0) columns[column].number(value);
        return p;
    }

    // Read a line of JSON.
    bool json(const char* p, const char* end) {
        p = object(p, end, objects[0]);
        if (p != end) return false;
        name_variant(2);
        return true;
    }

    // Read an object whose keys come in their order, some left out; null where Python must look.
    const char* object(const char* p, const char* end, const std::vector<Key>& keys) {
        if (*p++ != '{') return nullptr;
        auto key = keys.begin();
        bool is_over = *p == '}';
        while (!is_over) {
            while (key != keys.end() && !begins_with(p, end, key->text)) {
                if (key->is_required) return nullptr;
                ++key;
            }
            if (key == keys.end()) return nullptr;
            p = json_value(p + key->text.size(), end, key->field);
            if (!p || (*p != ',' && *p != '}')) return nullptr;
            is_over = *p == '}';
            p += !is_over;
            ++key;
        }
        while (key != keys.end())
            if (key++->is_required) return nullptr;
        return p + 1;
    }

    static bool begins_with(const char* p, const char* end, const std::string& text) {
        return static_cast<size_t>(end - p) >= text.size() &&
               !std::memcmp(p, text.data(), text.size());
    }

    const char* json_value(const char* p, const char* end, Field field) {
        if (field.kind == OBJECT) return object(p, end, objects[field.column]);
        if (is_number(field)) return number(p, end, field);
        if (*p != '"') return nullptr;
        const char* start = ++p;
        p = string_end(p, end);
        if (*p == '"') return text(start, p, field) ? p + 1 : nullptr;
        unescaped_.assign(start, p);
        while (*p == '\\') {
            static constexpr char escapes[] = "\"\\/bfnrt", meant[] = "\"\\/\b\f\n\r\t";
            const char* found = std::find(escapes, std::end(escapes) - 1, p[1]);
            if (found == std::end(escapes) - 1) return nullptr;
            unescaped_.push_back(meant[found - escapes]);
            start = p + 2;
            p = string_end(start, end);
            unescaped_.append(start, p);
        }
        if (*p != '"') return nullptr;
        const char* text_end = unescaped_.data() + unescaped_.size();
        return text(unescaped_.data(), text_end, field) ? p + 1 : nullptr;
    }

    // Find a quote, a backslash or a character that is not allowed in a string.
    static const char* string_end(const char* p, const char* end) {
        constexpr uint64_t ones = 0x0101010101010101u;
        for (; end - p >= 8; p += 8) {
            uint64_t word = load64(p), quote = word ^ (ones * '"'), escape = word ^ (ones * '\\');
            uint64_t found = ((quote - ones) & ~quote) | ((escape - ones) & ~escape) |
                             ((word - ones * ' ') & ~word);
            if (found &= ones << 7) return p + __builtin_ctzll(found) / 8;
        }
        while (p < end && *p != '"' && *p != '\\' && static_cast<unsigned char>(*p) >= ' ') ++p;
        return p;
    }
};

}  // namespace ccpipe::gridengine
