// Bytes to numbers: what the kernel finds series and fields by.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>
#include <vector>

namespace ccpipe {

struct Seed {
    uint64_t a, b;  // random for each process, against hash flooding
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

// Whether two runs of bytes are the same: without a call where they are short, as mostly.
inline bool same(const char* a, const char* b, size_t size) {
    if (size < 4 || size > 32) return std::memcmp(a, b, size) == 0;
    if (size < 8) {
        uint32_t first[2], last[2];
        std::memcpy(&first[0], a, 4);
        std::memcpy(&first[1], b, 4);
        std::memcpy(&last[0], a + size - 4, 4);
        std::memcpy(&last[1], b + size - 4, 4);
        return first[0] == first[1] && last[0] == last[1];
    }
    for (size_t at = 0; at + 8 < size; at += 8)
        if (load64(a + at) != load64(b + at)) return false;
    return load64(a + size - 8) == load64(b + size - 8);
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

// Bytes that never move, many small ones in few blocks.
class Blocks {
public:
    const char* keep(const char* bytes, size_t size) {
        if (size > left_ || blocks_.empty()) {
            block_ = std::min(2 * block_, size_t{1} << 20);
            left_ = std::max(size, block_);
            blocks_.emplace_back(new char[left_]);
            end_ = blocks_.back().get();
            total_ += left_;
        }
        char* kept = end_;
        std::memcpy(kept, bytes, size);
        end_ += size;
        left_ -= size;
        return kept;
    }

    size_t size() const { return total_; }

private:
    std::vector<std::unique_ptr<char[]>> blocks_;
    size_t block_ = 2048, left_ = 0, total_ = 0;
    char* end_ = nullptr;
};

// Bytes to numbers: a hash table with open addressing, which only grows.
class Index {
public:
    explicit Index(const Seed& seed) : seed_(seed), slots_(64) {}

    // The place of `key` among the entries, or -1.
    int32_t find(const char* key, size_t size) const {
        auto h = static_cast<uint32_t>(hash(key, size, seed_));
        for (size_t i = h;; ++i) {
            const Slot& slot = slots_[i & (slots_.size() - 1)];
            if (slot.entry < 0) return -1;
            if (slot.hash == h && is(slot.entry, key, size)) return slot.entry;
        }
    }

    // The entry that followed `entry` last time, if `text` begins with its key.
    int32_t follows(int32_t entry, const char* text, const char* end) const {
        int32_t next = entries_[entry].next;
        size_t size = entries_[next].size;
        return static_cast<size_t>(end - text) > size && is(next, text, size) ? next : -1;
    }

    // Record the successor of `entry`; return whether it is the same as last time.
    bool remember(int32_t entry, int32_t next) {
        bool same = entries_[entry].next == next;
        entries_[entry].next = next;
        return same;
    }

    int32_t add(const char* key, size_t size, int32_t code) {
        auto entry = static_cast<int32_t>(entries_.size());
        auto h = static_cast<uint32_t>(hash(key, size, seed_));
        entries_.push_back({keys_.keep(key, size), static_cast<uint32_t>(size), h, code, entry});
        if (2 * entries_.size() > slots_.size()) {
            slots_.assign(2 * slots_.size(), Slot());
            for (int32_t e = 0; e < entry; ++e) place(e);
        }
        place(entry);
        return entry;
    }

    // The entry of `key`, perhaps a new one.
    int32_t intern(const char* key, size_t size) {
        int32_t entry = find(key, size);
        return entry < 0 ? add(key, size, 0) : entry;
    }

    // Whether `text` begins with the key of `entry`.
    bool begins(int32_t entry, const char* text) const {
        return same(entries_[entry].key, text, entries_[entry].size);
    }

    int32_t code(int32_t entry) const { return entries_[entry].code; }
    size_t size(int32_t entry) const { return entries_[entry].size; }
    const char* key(int32_t entry) const { return entries_[entry].key; }
    size_t entries() const { return entries_.size(); }

    // Bytes in memory, roughly.
    size_t bytes() const {
        return keys_.size() + entries_.size() * sizeof(Entry) + slots_.size() * sizeof(Slot);
    }

private:
    struct Entry {
        const char* key;
        uint32_t size, hash;
        int32_t code, next;
    };
    struct Slot {
        uint32_t hash = 0;
        int32_t entry = -1;
    };

    bool is(int32_t entry, const char* key, size_t size) const {
        const Entry& e = entries_[entry];
        return e.size == size && same(e.key, key, size);
    }

    void place(int32_t entry) {
        size_t i = entries_[entry].hash & (slots_.size() - 1);
        while (slots_[i].entry >= 0) i = (i + 1) & (slots_.size() - 1);
        slots_[i] = {entries_[entry].hash, entry};
    }

    Seed seed_;
    std::vector<Slot> slots_;
    std::vector<Entry> entries_;
    Blocks keys_;
};

// Plain items, of which there are millions: realloc() moves their pages, where a vector copies them
// and has them twice meanwhile. A deque costs a line 6 ns more.
template <typename Item>
class Column {
public:
    Column() = default;
    Column(const Column&) = delete;
    Column& operator=(const Column&) = delete;
    ~Column() { std::free(items_); }

    void push_back(Item item) {
        if (size_ == capacity_) {
            size_t more = std::max(size_t{64}, 2 * capacity_);
            void* moved = std::realloc(items_, more * sizeof(Item));
            if (!moved) throw std::bad_alloc();
            items_ = static_cast<Item*>(moved);
            capacity_ = more;
        }
        items_[size_++] = item;
    }

    const Item& operator[](size_t place) const { return items_[place]; }
    size_t size() const { return size_; }

private:
    Item* items_ = nullptr;
    size_t size_ = 0, capacity_ = 0;
};

// Pairs of numbers, numbered in the order in which they are added. Of millions each takes 8 bytes
// and, in a hash table that is up to three quarters full, 5 to 11 more.
class Pairs {
public:
    struct Pair {
        int32_t left, right;
    };

    explicit Pairs(const Seed& seed) : seed_(seed), slots_(64, EMPTY) {}

    // The number of a pair, or -1.
    int32_t find(Pair pair) const {
        uint64_t h = hash_of(pair);
        for (size_t i = h;; ++i) {
            uint32_t slot = slots_[i & (slots_.size() - 1)];
            if (slot == EMPTY) return -1;
            if ((slot ^ mark(h)) <= NUMBER && is(slot & NUMBER, pair)) return slot & NUMBER;
        }
    }

    // The number of a pair, perhaps a new one.
    int32_t intern(Pair pair) {
        int32_t number = find(pair);
        if (number >= 0) return number;
        pairs_.push_back(pair);
        if (4 * pairs_.size() > 3 * slots_.size()) {
            size_t size = 2 * slots_.size();
            slots_ = {};  // freed first: it is the largest part
            slots_.resize(size, EMPTY);
            for (uint32_t each = 0; each + 1 < pairs_.size(); ++each) place(each);
        }
        number = static_cast<int32_t>(pairs_.size() - 1);
        place(number);
        return number;
    }

    const Pair& operator[](int32_t number) const { return pairs_[number]; }
    size_t size() const { return pairs_.size(); }

    // Bytes in memory, roughly.
    size_t bytes() const {
        return pairs_.size() * sizeof(Pair) + slots_.size() * sizeof(uint32_t);
    }

private:
    // A slot is a number, and above it 5 bits of the hash, so that few others are looked at.
    static constexpr uint32_t NUMBER = (uint32_t{1} << 27) - 1, EMPTY = ~uint32_t{0};

    Seed seed_;
    std::vector<uint32_t> slots_;
    Column<Pair> pairs_;

    bool is(uint32_t number, Pair pair) const {
        return pairs_[number].left == pair.left && pairs_[number].right == pair.right;
    }

    uint64_t hash_of(Pair pair) const {
        uint64_t word;
        std::memcpy(&word, &pair, 8);
        return fold(word ^ seed_.b, seed_.a | 1);
    }

    static uint32_t mark(uint64_t h) { return static_cast<uint32_t>(h >> 32) & ~NUMBER; }

    void place(uint32_t number) {
        uint64_t h = hash_of(pairs_[number]);
        size_t i = h & (slots_.size() - 1);
        while (slots_[i] != EMPTY) i = (i + 1) & (slots_.size() - 1);
        slots_[i] = mark(h) | number;
    }
};

}  // namespace ccpipe
