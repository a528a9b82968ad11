// Usual lines of line protocol to rows, fast: called by `_kernel.pyx`.
//
// It reads the lines that programs usually write. Any other line it leaves (ODD) to the Python
// decoder, which is the reference and reads, repairs or rejects that one line. So nothing here
// rejects a line; it only must never accept one that Python would not.
//
// All pointers are into a buffer that ends in NUL, so one byte beyond the end may be read.
#pragma once

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "encodings.hpp"
#include "index.hpp"
#include "utf8.hpp"

static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "elsewhere the twin in Python does it");

namespace ccpipe {

enum Result { DONE, ODD };
enum What { SERIES, FIELD };
enum Type : uint8_t { FLOAT, INT, UINT, BOOL, TEXT };

struct Row {
    int64_t start, end, time, exact;
    double number;
    int32_t series, field;
    uint8_t type;
};

struct Text {
    int64_t start, end;  // inside the quotes
};

// Returns the number of a new series or field; -1 where its bytes break a rule.
using Resolve = int32_t (*)(void* table, What what, const char* raw, size_t size);

inline bool is_digit(char c) { return static_cast<unsigned char>(c - '0') < 10; }

// Read a run of decimal digits onto `value`, which wraps beyond 64 bits; returns its end.
inline const char* digits(const char* p, const char* end, uint64_t& value) {
    static constexpr uint64_t power[] = {1,      10,      100,      1000,     10000,
                                         100000, 1000000, 10000000, 100000000};
    // Eight at a time, without a branch on their count.
    while (end - p >= 8) {
        uint64_t word = load64(p);
        uint64_t other = ((word + 0x4646464646464646u) | (word - 0x3030303030303030u)) &
                         0x8080808080808080u;
        int count = other ? __builtin_ctzll(other) / 8 : 8;
        if (count == 0) return p;
        word = (word - 0x3030303030303030u) << (64 - 8 * count);
        word = word * 10 + (word >> 8);
        word = (((word & 0x000000FF000000FFu) * 0x000F424000000064u) +
                (((word >> 16) & 0x000000FF000000FFu) * 0x0000271000000001u)) >> 32;
        value = value * power[count] + word;
        p += count;
        if (count < 8) return p;
    }
    while (is_digit(*p)) value = 10 * value + static_cast<uint64_t>(*p++ - '0');
    return p;
}

// Undo the escapes of a string; InfluxDB's strings have two of them.
inline void unescape(const char* p, const char* end, bool influx, std::string& out) {
    out.clear();
    for (; p < end; ++p) {
        char meant = *p != '\\'  ? 0
                     : p[1] == '"' ? '"'
                     : p[1] == '\\' ? '\\'
                     : influx       ? 0
                     : p[1] == 'n'  ? '\n'
                     : p[1] == 'r'  ? '\r'
                     : p[1] == 't'  ? '\t'
                                    : 0;
        out.push_back(meant ? meant : *p);
        p += meant != 0;
    }
}

constexpr int64_t NO_TIME = std::numeric_limits<int64_t>::min();
constexpr ptrdiff_t MAX_KEY = 65535;
constexpr ptrdiff_t NEAR = 512;  // bytes searched for the end of a series before it is parsed
constexpr int LUCK = 8;  // wrong guesses in a row after which guessing stops
constexpr size_t KEPT = 1 << 18;  // rows whose memory is kept for the next payload

// Powers of ten: a double represents them exactly up to 1e22, a long double of 64 bits up to 1e27.
template <typename Real>
constexpr Real TENS[] = {1e0L,  1e1L,  1e2L,  1e3L,  1e4L,  1e5L,  1e6L,  1e7L,  1e8L,  1e9L,
                         1e10L, 1e11L, 1e12L, 1e13L, 1e14L, 1e15L, 1e16L, 1e17L, 1e18L, 1e19L,
                         1e20L, 1e21L, 1e22L, 1e23L, 1e24L, 1e25L, 1e26L, 1e27L};

// The double nearest to mantissa * 10^power, where one exact step gives it.
//
// Clinger's method: where both operands are exact, one operation rounds once. A long double of 64
// bits (x86) holds all of `mantissa`; its result, rounded to 53 bits, is right unless the bits that
// are dropped are exactly one half: only then the first rounding may have decided the second.
inline bool nearest(uint64_t mantissa, ptrdiff_t power, double& number) {
    if (mantissa <= uint64_t{1} << 53 && -22 <= power && power <= 22) {
        auto exact = static_cast<double>(mantissa);
        number = power < 0 ? exact / TENS<double>[-power] : exact * TENS<double>[power];
        return true;
    }
    if constexpr (std::numeric_limits<long double>::digits == 64) {
        auto exact = static_cast<long double>(mantissa);
        using Long = long double;
        Long result = power < 0 ? exact / TENS<Long>[-power] : exact * TENS<Long>[power];
        uint64_t bits;
        std::memcpy(&bits, &result, 8);
        number = static_cast<double>(result);
        return (bits & 0x7FF) != 0x400;
    }
    return false;
}

class Scan {
public:
    // `influx` selects InfluxDB's grammar instead of ClusterCockpit's.
    Scan(Encodings& encodings, const Seed& seed, bool influx, Resolve resolve, void* table)
        : encodings(encodings), fields(seed), resolve_(resolve), table_(table) {
        for (int c = 0; c < 256; ++c) {
            bool bare = influx ? c == ' ' || c == '\n' || c == '\r' : c <= 0x20 || c == 0x7F;
            in_name_[c] = !bare && c != ',' && c != '\\';
            in_key_[c] = in_name_[c] && c != '=';
            may_begin_[c] = c != ' ' && c != '\n' && c != '\r' && c != '#';
        }
    }

    Encodings& encodings;
    Index fields;
    std::vector<Row> rows;
    std::vector<Text> texts;
    unsigned units = 0;  // of the timestamps, as bits: s, ms, us, ns, none
    bool bare_points = false;  // whether a number began or ended with its point
    unsigned types = 0;        // of the values, as bits
    int32_t field = NONE;      // of all rows; MIXED where they differ

    static constexpr int32_t NONE = -2, MIXED = -1;

    // Start at `position` of a payload; `unit` is 0 to 3 for s to ns, or -1 for auto.
    void begin(const char* payload, size_t size, size_t position, int unit) {
        base_ = payload;
        end_ = payload + size;
        at_ = payload + std::min(position, size);
        if (unit != unit_ || stamp_ != kept_stamp_) stamp_size_ = 0;
        stamp_ = kept_stamp_;
        unit_ = unit;
        units = 0;
        bare_points = false;
        types = 0;
        field = NONE;
        other_ = 0;
        if (rows.capacity() > KEPT) rows = {};
        rows.clear();
        texts.clear();
    }

    size_t position() const { return at_ - base_; }

    // Whether the payload up to `position` is just the lines of the rows, each ending in LF.
    bool dense() const { return other_ == 0; }

    // Read lines up to the end, or up to one for Python; `position` is then that line's.
    void run() {
        std::lock_guard<std::mutex> lock(encodings.mutex);
        for (;;) {
            if (at_ >= end_ || !may_begin_[static_cast<unsigned char>(*at_)]) {
                const char* before = at_;
                bool is_end = !skip_blank();
                other_ |= at_ - before;
                if (is_end) break;
            }
            if (line() == ODD) break;
        }
        if (stamp_ != kept_stamp_) std::memcpy(kept_stamp_, stamp_, stamp_size_);
        stamp_ = kept_stamp_;
    }

private:
    bool in_name_[256], in_key_[256];  // what needs no escape in a measurement, in a key
    bool may_begin_[256];  // what begins a line, no blank one and no comment
    const char *base_, *end_, *at_;
    int unit_ = -1;
    ptrdiff_t other_;  // 0 where there are no bytes but lines that end in LF
    std::vector<size_t> seen_;  // for each field, its row in a line with several
    int32_t series_ = -1, field_ = -1;  // the entries read last
    int luck_ = 0;                      // wrong guesses at the next series that are left
    const char* stamp_ = kept_stamp_;  // the timestamp read last, and what it means
    ptrdiff_t stamp_size_ = 0;
    char kept_stamp_[32];  // it, between payloads
    int64_t time_;
    unsigned time_unit_;
    Resolve resolve_;
    void* table_;

    bool skip_blank() {
        for (;;) {
            while (*at_ == ' ') ++at_;
            if (*at_ == '\n') {
                ++at_;
            } else if (*at_ == '#') {
                auto feed = static_cast<const char*>(std::memchr(at_, '\n', end_ - at_));
                at_ = feed ? feed + 1 : end_;
            } else if (*at_ == '\r' && (at_[1] == '\n' || at_ + 1 == end_)) {
                ++at_;
            } else {
                return at_ < end_;
            }
        }
    }

    Result line() {
        const char* p = at_;
        // Programs repeat themselves: the next series is usually the one that followed at first.
        // Where that is wrong, guessing stops until it would have been right.
        size_t size = 0;
        int32_t entry = luck_ > 0 ? encodings.follows(series_, p, end_, size) : -1;
        if (entry < 0 || p[size] != ' ') {
            entry = series_at(p, size);
            if (entry < 0) return ODD;
            luck_ = entry == series_ + 1 ? LUCK : luck_ - (luck_ > 0);
        }
        series_ = entry;
        p += size;
        while (*p == ' ') ++p;
        return fields_of(p, encodings.code(entry));
    }

    // The entry of the series at `p`, known or new, and the `size` of its encoding; or -1.
    int32_t series_at(const char* p, size_t& size) {
        // The bytes up to the next space are a series if they are in the table: they were
        // checked when they were added, and none of them ends in a backslash.
        auto space = static_cast<const char*>(std::memchr(p, ' ', std::min(end_ - p, NEAR)));
        size = space - p;
        int32_t entry = space ? encodings.find(p, size) : -1;
        if (entry >= 0) return entry;
        const char* key_ends = key_end(p);
        if (!key_ends || *key_ends != ' ' || key_ends - p > MAX_KEY) return -1;
        size = key_ends - p;
        if (key_ends != space) entry = encodings.find(p, size);
        if (entry >= 0) return entry;
        if (is_canonical(p, key_ends)) return encodings.add(p, size);
        int32_t code = resolve(SERIES, p, key_ends);
        return code < 0 ? -1 : encodings.alias(p, size, code);
    }

    // Where measurement and tags that begin at `p` end, or null where they break the grammar.
    const char* key_end(const char* p) const {
        p = name_end(p, in_name_, false);
        while (p && *p == ',') {
            p = name_end(p + 1, in_key_, true);
            if (!p || *p != '=') return nullptr;
            p = name_end(p + 1, in_key_, true);
        }
        return p;
    }

    const char* name_end(const char* p, const bool* may_stand, bool is_key) const {
        const char* start = p;
        for (; p < end_; ++p) {
            if (may_stand[static_cast<unsigned char>(*p)]) continue;
            if (*p != '\\') break;
            if (p[1] == ' ' || p[1] == ',' || (is_key && p[1] == '=')) ++p;
        }
        return p > start ? p : nullptr;
    }

    // Ask Python, for which the interpreter may have to be waited for: unlocked.
    int32_t resolve(What what, const char* raw, const char* end) {
        encodings.mutex.unlock();
        int32_t code = resolve_(table_, what, raw, end - raw);
        encodings.mutex.lock();
        return code;
    }

    int32_t field_at(const char* raw, const char* end) {
        int32_t entry = fields.find(raw, end - raw);
        if (entry < 0) {
            int32_t code = resolve(FIELD, raw, end);
            if (code >= 0) entry = fields.add(raw, end - raw, code);
        }
        return entry;
    }

    // Read the fields of a line that begin at `p`, and what follows them; all rows or none.
    Result fields_of(const char* p, int32_t series_code) {
        size_t first = rows.size(), first_text = texts.size();
        for (bool several = false;; ++p) {
            Row& row = rows.emplace_back();
            row.series = series_code;
            p = key(p, row);
            if (p) p = value(p + 1, row);
            if (!p) break;
            bool more = *p == ',';
            several |= more;
            if (several) once(first);
            if (more) continue;
            if (finish(p, first) == ODD) break;
            return DONE;
        }
        rows.resize(first);
        texts.resize(first_text);
        return ODD;
    }

    // Read a field key; returns where its '=' is.
    const char* key(const char* p, Row& row) {
        int32_t entry = field_ < 0 ? -1 : fields.follows(field_, p, end_);
        if (entry < 0 || p[fields.size(entry)] != '=') {
            const char* end = name_end(p, in_key_, true);
            if (!end || *end != '=' || end - p > MAX_KEY) return nullptr;
            entry = field_at(p, end);
            if (entry < 0) return nullptr;
            if (field_ >= 0) (void)fields.remember(field_, entry);
        }
        row.field = fields.code(entry);
        if (entry != field_ || field == NONE)
            field = field == NONE || field == row.field ? row.field : MIXED;
        field_ = entry;
        return p + fields.size(entry);
    }

    // Of a duplicate field in a line, whose rows begin at `first`, the last value counts.
    void once(size_t first) {
        size_t last = rows.size() - 1;
        auto field = static_cast<size_t>(rows[last].field);
        if (seen_.size() <= field) seen_.resize(2 * field + 16);
        size_t before = seen_[field];
        if (first <= before && before < last && rows[before].field == rows[last].field) {
            rows[before] = rows[last];
            rows.pop_back();
        } else {
            seen_[field] = last;
        }
    }

    // Read a value; the byte at the returned place ends it. Null where Python must decide.
    const char* value(const char* p, Row& row) {
        const char* end;
        switch (*p) {
        case '"':
            return text(p + 1, row);
        case 't': case 'T': case 'f': case 'F':
            end = boolean(p, row);
            break;
        default:
            end = number(p, row);
        }
        if (!end) return nullptr;
        if (*end == ',' || *end == ' ' || *end == '\n' || *end == '\r' || end == end_) return end;
        return nullptr;
    }

    static const char* boolean(const char* p, Row& row) {
        bool truth = *p == 't' || *p == 'T';
        row.type = BOOL;
        row.exact = truth;
        row.number = truth;
        const char* rest = p + 1;
        static const char* const words[] = {"rue", "RUE", "alse", "ALSE"};
        for (int upper = 0; upper < 2; ++upper) {
            const char* word = words[2 * !truth + upper];
            size_t size = std::strlen(word);
            if (std::strncmp(rest, word, size) == 0 && !(upper && *p >= 'a')) return rest + size;
        }
        return rest;
    }

    const char* text(const char* p, Row& row) {
        const char* start = p;
        uint8_t high = 0;
        for (; p < end_ && *p != '"'; ++p) {
            high |= static_cast<uint8_t>(*p);
            if (*p == '\\') {
                if (++p == end_) return nullptr;
                high |= static_cast<uint8_t>(*p);
            }
        }
        if (p >= end_) return nullptr;
        if (high >= 0x80 && !is_utf8(start, p)) return nullptr;
        row.type = TEXT;
        row.exact = texts.size();
        row.number = std::numeric_limits<double>::quiet_NaN();
        texts.push_back({start - base_, p - base_});
        return p + 1;
    }

    const char* number(const char* p, Row& row) {
        const char* start = p;
        bool negative = *p == '-';
        p += negative;
        const char* first = p;
        uint64_t mantissa = 0;
        p = digits(p, end_, mantissa);
        ptrdiff_t count = p - first;
        if (*p == 'i' || *p == 'u') return integer(p, count, negative, mantissa, row);
        ptrdiff_t places = 0;
        if (*p == '.') {
            const char* point = p++;
            p = digits(p, end_, mantissa);
            places = p - point - 1;
            bare_points |= !places || !count;
            count += places;
        }
        if (count == 0) return nullptr;
        ptrdiff_t power = -places;
        if ((*p | 0x20) == 'e') {
            ++p;
            bool down = *p == '-';
            if (*p == '-' || *p == '+') ++p;
            if (!is_digit(*p)) return nullptr;
            ptrdiff_t exponent = 0;
            while (is_digit(*p))
                if (exponent < 100000) exponent = 10 * exponent + (*p++ - '0'); else ++p;
            power += down ? -exponent : exponent;
        }
        row.type = FLOAT;
        row.exact = 0;
        if (count <= 19 && -27 <= power && power <= 27 && nearest(mantissa, power, row.number)) {
            if (negative) row.number = -row.number;
            return p;
        }
        auto [end, error] = std::from_chars(start, p, row.number);
        return error == std::errc() && end == p ? p : nullptr;
    }

    static const char* integer(const char* p, ptrdiff_t count, bool negative, uint64_t size,
                               Row& row) {
        if (count == 0 || count > 19) return nullptr;  // rarely 20 digits: left to Python
        if (*p == 'u') {
            if (negative) return nullptr;
            row.type = UINT;
            row.exact = static_cast<int64_t>(size);
            row.number = static_cast<double>(size);
        } else {
            if (size > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) return nullptr;
            row.type = INT;
            row.exact = negative ? -static_cast<int64_t>(size) : static_cast<int64_t>(size);
            row.number = static_cast<double>(row.exact);
        }
        return p + 1;
    }

    // Read the rest of a line, from the end of its last value on; its rows begin at `first`.
    Result finish(const char* p, size_t first) {
        const char* last = p;
        int64_t time = NO_TIME;
        unsigned unit = 4;
        while (*p == ' ') ++p;
        if (p > last && (*p == '-' || is_digit(*p))) {
            p = timestamp(p);
            if (!p) return ODD;
            last = p;
            time = time_;
            unit = time_unit_;
            while (*p == ' ') ++p;
        }
        if (*p == '\r') ++p;
        other_ |= (p - last) | (*p != '\n');
        if (*p == '\n') ++p;
        else if (p != end_) return ODD;
        units |= 1u << unit;
        unsigned met = 0;
        for (Row *row = rows.data() + first, *end = &rows.back(); row <= end; ++row) {
            row->time = time;
            row->start = at_ - base_;
            row->end = last - base_;
            met |= 1u << row->type;
        }
        types |= met;
        at_ = p;
        return DONE;
    }

    // Read a timestamp into `time_` and `time_unit_`; returns its end. Mostly it is the same again.
    const char* timestamp(const char* p) {
        if (stamp_size_ && end_ - p >= stamp_size_ && same(p, stamp_, stamp_size_) &&
            !is_digit(p[stamp_size_]))
            return p + stamp_size_;
        stamp_size_ = 0;
        const char* start = p;
        bool negative = *p == '-';
        p += negative;
        const char* first = p;
        uint64_t stamp = 0;
        p = digits(p, end_, stamp);
        if (p == first || p - first > 19 || stamp > INT64_MAX) return nullptr;
        time_unit_ = unit_ >= 0 ? unit_ : stamp <= 100000000000u       ? 0
                                      : stamp <= 100000000000000u    ? 1
                                      : stamp <= 100000000000000000u ? 2
                                                                     : 3;
        static constexpr int64_t nanoseconds[] = {1000000000, 1000000, 1000, 1};
        if (__builtin_mul_overflow(static_cast<int64_t>(stamp), nanoseconds[time_unit_], &time_))
            return nullptr;
        if (negative) time_ = -time_;
        stamp_ = start;
        stamp_size_ = p - start;
        return p;
    }
};

}  // namespace ccpipe
