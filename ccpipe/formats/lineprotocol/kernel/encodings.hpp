// The encodings of series and the numbers that they mean: where a series table keeps them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <mutex>
#include <string>
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

// The encodings of series, in three parts that many share: the measurement, the first two tags,
// mostly cluster and node, and all others. So a series takes some 25 bytes instead of 130.
//
// One thread may read a payload while others look series up: callers lock `mutex` first,
// except for methods that lock it. Do not wait for the interpreter lock while holding it.
class Encodings {
public:
    explicit Encodings(const Seed& seed)
        : names_(seed), heads_(seed), tails_(seed), tags_(seed), series_(seed), aliases_(seed) {}

    std::mutex mutex;

    // The entry of an encoding, or -1.
    int32_t find(const char* key, size_t size) const {
        Parts parts(key, size);
        int32_t name = names_.find(key, parts.head - key);
        int32_t head = name < 0 ? -1 : heads_.find(parts.head, parts.tail - parts.head);
        int32_t tail = head < 0 ? -1 : tails_.find(parts.tail, parts.end - parts.tail);
        int32_t tags = tail < 0 ? -1 : tags_.find({head, tail});
        if (tags < 0) return -1;
        int32_t entry = series_.find({tags, name});
        if (entry >= 0 || aliases_.size() == 0) return entry;
        entry = aliases_.find({tags, name});
        return entry < 0 ? -1 : ALIAS + entry;
    }

    // The entry that was added after `entry`, if `text` begins with it, and its `size`; else -1.
    int32_t follows(int32_t entry, const char* text, const char* end, size_t& size) const {
        const Pairs& all = entry < ALIAS ? series_ : aliases_;
        int32_t next = entry + 1 - (entry < ALIAS ? 0 : ALIAS);
        if (static_cast<size_t>(next) >= all.size()) return -1;
        auto [tags, name] = all[next];
        auto [head, tail] = tags_[tags];
        size_t to_head = names_.size(name), to_tail = to_head + heads_.size(head);
        size = to_tail + tails_.size(tail);
        bool is_next = static_cast<size_t>(end - text) > size && names_.begins(name, text) &&
                       heads_.begins(head, text + to_head) && tails_.begins(tail, text + to_tail);
        return is_next ? entry + 1 : -1;
    }

    // Add a series by its canonical encoding; returns its entry.
    int32_t add(const char* key, size_t size) { return series_.intern(pair(key, size)); }

    // The entry of an encoding that means series `code`, perhaps a new one.
    int32_t alias(const char* key, size_t size, int32_t code) {
        int32_t entry = find(key, size);
        if (entry >= 0) return entry;
        codes_.push_back(code);
        return ALIAS + aliases_.intern(pair(key, size));
    }

    // The number of the series that an entry means.
    int32_t code(int32_t entry) const { return entry < ALIAS ? entry : codes_[entry - ALIAS]; }

    // The number of a series by one of its encodings, or -1.
    int32_t known(const char* key, size_t size) {
        std::lock_guard<std::mutex> lock(mutex);
        int32_t entry = find(key, size);
        return entry < 0 ? -1 : code(entry);
    }

    // The number of a series by its canonical encoding, perhaps a new one.
    int32_t intern(const char* key, size_t size) {
        std::lock_guard<std::mutex> lock(mutex);
        int32_t entry = find(key, size);
        return code(entry < 0 ? add(key, size) : entry);
    }

    void set_alias(const char* key, size_t size, int32_t code) {
        std::lock_guard<std::mutex> lock(mutex);
        (void)alias(key, size, code);
    }

    // Write the canonical encoding of a series to `key`; false where there is no such series.
    bool key(int32_t code, std::string& key) {
        std::lock_guard<std::mutex> lock(mutex);
        if (code < 0 || static_cast<size_t>(code) >= series_.size()) return false;
        auto [tags, name] = series_[code];
        auto [head, tail] = tags_[tags];
        key.assign(names_.key(name), names_.size(name));
        key.append(heads_.key(head), heads_.size(head));
        key.append(tails_.key(tail), tails_.size(tail));
        return true;
    }

    size_t series() {
        std::lock_guard<std::mutex> lock(mutex);
        return series_.size();
    }

    size_t entries() {
        std::lock_guard<std::mutex> lock(mutex);
        return series_.size() + aliases_.size();
    }

    size_t bytes() {
        std::lock_guard<std::mutex> lock(mutex);
        return names_.bytes() + heads_.bytes() + tails_.bytes() + tags_.bytes() +
               series_.bytes() + aliases_.bytes() + codes_.size() * sizeof(int32_t);
    }

    bool has_room(size_t count, size_t size) { return entries() < count && bytes() < size; }

private:
    static constexpr int32_t ALIAS = 1 << 30;  // the first entry of other than canonical encodings

    Index names_, heads_, tails_;
    Pairs tags_;              // of heads and tails
    Pairs series_, aliases_;  // of tags and names
    std::vector<int32_t> codes_;  // of each alias its series

    struct Parts {
        const char *head, *tail, *end;

        Parts(const char* key, size_t size) : end(key + size) {
            head = comma(key);
            tail = head;
            for (int tag = 0; tag < 2 && tail < end; ++tag) tail = comma(tail + 1);
        }

        const char* comma(const char* from) const {
            auto found = static_cast<const char*>(std::memchr(from, ',', end - from));
            return found ? found : end;
        }
    };

    Pairs::Pair pair(const char* key, size_t size) {
        Parts parts(key, size);
        int32_t head = heads_.intern(parts.head, parts.tail - parts.head);
        int32_t tail = tails_.intern(parts.tail, parts.end - parts.tail);
        return {tags_.intern({head, tail}), names_.intern(key, parts.head - key)};
    }
};

}  // namespace ccpipe
