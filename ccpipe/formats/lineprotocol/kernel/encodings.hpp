// The encodings of series and the numbers that they mean: where a series table keeps them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <mutex>
#include <vector>

#include "index.hpp"
#include "utf8.hpp"

namespace ccpipe {

// Whether a grammatical series has no other encoding: sorted tags, each once, nothing escaped.
inline bool is_canonical(const char* p, const char* end) {
    if (std::memchr(p, '\\', end - p) || !is_utf8(p, end)) return false;
    auto find = [end](const char* from, char wanted) {
        return static_cast<const char*>(std::memchr(from, wanted, end - from));
    };
    const char* before = nullptr;
    size_t before_size = 0;
    for (p = find(p, ','); p; p = find(p, ',')) {
        const char* key = p + 1;
        p = find(key, '=');
        if (!p) return false;
        size_t size = p - key;
        if (before) {
            int order = std::memcmp(before, key, std::min(before_size, size));
            if (order > 0 || (order == 0 && before_size >= size)) return false;
        }
        before = key;
        before_size = size;
    }
    return true;
}

// One thread may read a payload while others look series up: callers lock `mutex` first,
// except for methods that lock it. Do not wait for the interpreter lock while holding it.
class Encodings {
public:
    explicit Encodings(const Seed& seed) : index(seed) {}

    Index index;
    std::mutex mutex;

    // Add a series by its canonical encoding; returns its entry.
    int32_t add(const char* key, size_t size) {
        auto code = static_cast<int32_t>(canonical_.size());
        canonical_.push_back(index.add(key, size, code));
        return canonical_.back();
    }

    // The entry of an encoding that means series `code`, perhaps a new one.
    int32_t alias(const char* key, size_t size, int32_t code) {
        int32_t entry = index.find(key, size);
        return entry < 0 ? index.add(key, size, code) : entry;
    }

    // The number of a series by one of its encodings, or -1.
    int32_t code(const char* key, size_t size) {
        std::lock_guard<std::mutex> lock(mutex);
        int32_t entry = index.find(key, size);
        return entry < 0 ? -1 : index.code(entry);
    }

    // The number of a series by its canonical encoding, perhaps a new one.
    int32_t intern(const char* key, size_t size) {
        std::lock_guard<std::mutex> lock(mutex);
        int32_t entry = index.find(key, size);
        return index.code(entry < 0 ? add(key, size) : entry);
    }

    void set_alias(const char* key, size_t size, int32_t code) {
        std::lock_guard<std::mutex> lock(mutex);
        (void)alias(key, size, code);
    }

    // The canonical encoding of a series, null where there is none; it stays where it is.
    const char* key(int32_t code, size_t& size) {
        std::lock_guard<std::mutex> lock(mutex);
        if (code < 0 || static_cast<size_t>(code) >= canonical_.size()) return nullptr;
        size = index.size(canonical_[code]);
        return index.key(canonical_[code]);
    }

    size_t series() {
        std::lock_guard<std::mutex> lock(mutex);
        return canonical_.size();
    }

    size_t entries() {
        std::lock_guard<std::mutex> lock(mutex);
        return index.entries();
    }

    bool has_room(size_t count, size_t size) {
        std::lock_guard<std::mutex> lock(mutex);
        return index.entries() < count && index.bytes() + canonical_.size() * sizeof(int32_t) < size;
    }

    size_t bytes() {
        std::lock_guard<std::mutex> lock(mutex);
        return index.bytes() + canonical_.size() * sizeof(int32_t);
    }

private:
    std::vector<int32_t> canonical_;  // of each series the entry of its canonical encoding
};

}  // namespace ccpipe
