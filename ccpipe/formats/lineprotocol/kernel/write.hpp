// Rows and messages to line protocol, fast: called by `_kernel.pyx`.
//
// As in `scan.hpp`, nothing is rejected here: what cannot be written is left to the Python encoder,
// which gives the same bytes.
#pragma once

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <new>
#include <utility>

namespace ccpipe {

// Reuses the buffer of the previous writer: allocating and freeing megabytes for each payload takes
// longer than the writing. Needs the interpreter lock.
class Writer {
public:
    Writer() { std::swap(buffer_, spare()); at_ = begin(); }
    Writer(const Writer&) = delete;
    Writer& operator=(const Writer&) = delete;
    ~Writer() {
        if (buffer_.size <= KEPT && buffer_.size > spare().size) std::swap(buffer_, spare());
        std::free(buffer_.begin);
    }

    const char* data() const { return begin(); }
    size_t size() const { return at_ - begin(); }

    // Make room for so many bytes more.
    void reserve(size_t size) {
        if (buffer_.size - this->size() < size) grow(size);
    }

    // Drop all but the first `size` bytes.
    void truncate(size_t size) { at_ = begin() + size; }

    void raw(const char* bytes, size_t size) {
        std::memcpy(room(size), bytes, size);
        at_ += size;
    }

    void raw(char byte) {
        *room(1) = byte;
        ++at_;
    }

    // A measurement, or a tag or field key or tag value; false where that is impossible.
    bool name(const char* p, size_t size, bool is_measurement) {
        if (size == 0 || p[size - 1] == '\\' || (is_measurement && *p == '#')) return false;
        char* to = room(2 * size);
        for (const char* end = p + size; p < end; ++p) {
            if (static_cast<unsigned char>(*p) < 0x20 || *p == 0x7F) return false;
            if (*p == ' ' || *p == ',' || (*p == '=' && !is_measurement)) *to++ = '\\';
            *to++ = *p;
        }
        at_ = to;
        return true;
    }

    void text(const char* p, size_t size) {
        char* to = room(2 * size + 2);
        *to++ = '"';
        for (const char* end = p + size; p < end; ++p) {
            switch (*p) {
            case '"': case '\\': *to++ = '\\'; *to++ = *p; break;
            case '\n': *to++ = '\\'; *to++ = 'n'; break;
            case '\r': *to++ = '\\'; *to++ = 'r'; break;
            case '\t': *to++ = '\\'; *to++ = 't'; break;
            default: *to++ = *p;
            }
        }
        *to++ = '"';
        at_ = to;
    }

    // A finite number, as Python's repr() writes it.
    void number(double value) {
        char* to = room(32);
        double size = std::fabs(value);
        if (size != 0 && (size < 1e-4 || size >= 1e16)) {
            to = std::to_chars(to, to + 32, value, std::chars_format::scientific).ptr;
        } else if (size < 9007199254740992.0 && value == std::trunc(value)) {
            if (std::signbit(value)) *to++ = '-';
            to = std::to_chars(to, to + 24, static_cast<int64_t>(size)).ptr;
            *to++ = '.';
            *to++ = '0';
        } else {
            to = std::to_chars(to, to + 32, value, std::chars_format::fixed).ptr;
            if (size >= 9007199254740992.0) {
                *to++ = '.';
                *to++ = '0';
            }
        }
        at_ = to;
    }

    template <typename Integer>
    void integer(Integer value, char suffix) {
        char* to = room(24);
        to = std::to_chars(to, to + 21, value).ptr;
        *to++ = suffix;
        at_ = to;
    }

    void boolean(bool value) { value ? raw("true", 4) : raw("false", 5); }

    // A space and a timestamp, cut off to its unit: 0 to 3 for s to ns, -1 for the coarsest that
    // loses nothing; nothing where there is none.
    void time(int64_t nanoseconds, int unit) {
        if (nanoseconds == std::numeric_limits<int64_t>::min()) return;
        if (nanoseconds != stamped_ || unit != unit_) {
            stamped_ = nanoseconds;
            unit_ = unit;
            static constexpr int64_t sizes[] = {1000000000, 1000000, 1000, 1};
            int place = unit;
            if (unit < 0)
                for (place = 0; nanoseconds % sizes[place] != 0;) ++place;
            int64_t count = nanoseconds / sizes[place] - (nanoseconds % sizes[place] < 0);
            stamp_[0] = ' ';
            stamp_size_ = std::to_chars(stamp_ + 1, stamp_ + sizeof stamp_, count).ptr - stamp_;
        }
        raw(stamp_, stamp_size_);
    }

private:
    int64_t stamped_ = std::numeric_limits<int64_t>::min();  // the latest time, mostly the next one too
    int unit_ = 0;
    char stamp_[24];
    size_t stamp_size_ = 0;
    struct Buffer {
        char* begin = nullptr;
        size_t size = 0;
    };
    Buffer buffer_;
    char* at_;  // where the next byte goes

    static constexpr size_t KEPT = 1 << 23;  // bytes of a buffer that is kept

    static Buffer& spare() {
        static Buffer kept;
        return kept;
    }

    char* begin() const { return buffer_.begin; }

    char* room(size_t size) {
        reserve(size);
        return at_;
    }

    void grow(size_t more) {
        size_t used = size(), size = std::max(used + more, 2 * buffer_.size);
        auto larger = static_cast<char*>(std::realloc(buffer_.begin, size));
        if (!larger) throw std::bad_alloc();
        buffer_ = {larger, size};
        at_ = larger + used;
    }
};

}  // namespace ccpipe
