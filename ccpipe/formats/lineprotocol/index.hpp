// Bytes to numbers: the kernel's own index of a series table.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

namespace ccpipe {

struct Seed {
    uint64_t a, b;  // random for each process, so that nobody can aim at one bucket
};

inline uint64_t load64(const char* p) {
    uint64_t word;
    std::memcpy(&word, p, 8);
    return word;
}

inline uint64_t fold(uint64_t a, uint64_t b) {
    auto product = static_cast<unsigned __int128>(a) * b;
    return static_cast<uint64_t>(product) ^ static_cast<uint64_t>(product >> 64);
}

// A hash in the manner of wyhash: 16 bytes with each multiplication.
inline uint64_t hash(const char* p, size_t size, const Seed& seed) {
    uint64_t h = seed.a ^ size;
    if (size >= 16) {
        const char* last = p + size - 16;
        for (; p < last; p += 16) h = fold(load64(p) ^ seed.b, load64(p + 8) ^ h);
        return fold(load64(last) ^ seed.b, load64(last + 8) ^ h);
    }
    uint64_t low = 0, high = 0;
    if (size >= 8) {
        low = load64(p);
        high = load64(p + size - 8);
    } else {
        std::memcpy(&low, p, size);
    }
    return fold(low ^ seed.b, high ^ h);
}

// Bytes to numbers: a hash table with open addressing, which only grows.
class Index {
public:
    explicit Index(const Seed& seed) : seed_(seed), slots_(64) {}

    // The place of `key` among the entries, or -1.
    int32_t find(const char* key, size_t size) const {
        uint64_t h = hash(key, size, seed_);
        for (size_t i = h;; ++i) {
            const Slot& slot = slots_[i & (slots_.size() - 1)];
            if (slot.entry < 0) return -1;
            if (slot.hash == static_cast<uint32_t>(h >> 32) && is(slot.entry, key, size))
                return slot.entry;
        }
    }

    // The entry that followed `entry` last time, if `text` begins with its key.
    int32_t follows(int32_t entry, const char* text, const char* end) const {
        int32_t next = entries_[entry].next;
        size_t size = entries_[next].size;
        return static_cast<size_t>(end - text) > size && is(next, text, size) ? next : -1;
    }

    // Note what follows `entry` now; says whether it is what followed it last time.
    bool remember(int32_t entry, int32_t next) {
        bool same = entries_[entry].next == next;
        entries_[entry].next = next;
        return same;
    }

    int32_t add(const char* key, size_t size, int32_t code) {
        auto entry = static_cast<int32_t>(entries_.size());
        entries_.push_back({keys_.size(), static_cast<uint32_t>(size), code, entry});
        keys_.insert(keys_.end(), key, key + size);
        if (2 * entries_.size() > slots_.size()) {
            slots_.assign(2 * slots_.size(), Slot());
            for (int32_t e = 0; e < entry; ++e) place(e);
        }
        place(entry);
        return entry;
    }

    int32_t code(int32_t entry) const { return entries_[entry].code; }
    size_t size(int32_t entry) const { return entries_[entry].size; }

private:
    struct Entry {
        size_t offset;
        uint32_t size;
        int32_t code, next;
    };
    struct Slot {
        uint32_t hash = 0;
        int32_t entry = -1;
    };

    bool is(int32_t entry, const char* key, size_t size) const {
        const Entry& e = entries_[entry];
        return e.size == size && std::memcmp(keys_.data() + e.offset, key, size) == 0;
    }

    void place(int32_t entry) {
        uint64_t h = hash(keys_.data() + entries_[entry].offset, entries_[entry].size, seed_);
        size_t i = h & (slots_.size() - 1);
        while (slots_[i].entry >= 0) i = (i + 1) & (slots_.size() - 1);
        slots_[i] = {static_cast<uint32_t>(h >> 32), entry};
    }

    Seed seed_;
    std::vector<Slot> slots_;
    std::vector<Entry> entries_;
    std::vector<char> keys_;
};

}  // namespace ccpipe
