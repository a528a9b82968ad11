// BLAKE2b without a key, RFC 7693: what `hashlib.blake2b` computes, without an object for each text.
#pragma once

#include <endian.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <utility>

namespace ccpipe {

class Blake2b {
public:
    // Write the digest of `size` bytes of `text`: `out_size` bytes, 1 to 64.
    static void digest(const char* text, size_t size, char* out, size_t out_size) {
        Blake2b state(out_size);
        size_t done = 0;
        for (; size - done > BLOCK; done += BLOCK) state.compress(text + done, done + BLOCK, false);
        char last[BLOCK] = {};
        if (size) std::memcpy(last, text + done, size - done);
        state.compress(last, size, true);
        for (uint64_t& word : state.h_) word = htole64(word);
        std::memcpy(out, state.h_, out_size);
    }

private:
    static constexpr size_t BLOCK = 128;
    static constexpr uint64_t IV[8] = {
        0x6a09e667f3bcc908, 0xbb67ae8584caa73b, 0x3c6ef372fe94f82b, 0xa54ff53a5f1d36f1,
        0x510e527fade682d1, 0x9b05688c2b3e6c1f, 0x1f83d9abfb41bd6b, 0x5be0cd19137e2179};
    static constexpr uint8_t SIGMA[10][16] = {
        {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15},
        {14, 10, 4, 8, 9, 15, 13, 6, 1, 12, 0, 2, 11, 7, 5, 3},
        {11, 8, 12, 0, 5, 2, 15, 13, 10, 14, 3, 6, 7, 1, 9, 4},
        {7, 9, 3, 1, 13, 12, 11, 14, 2, 6, 5, 10, 4, 0, 15, 8},
        {9, 0, 5, 7, 2, 4, 10, 15, 14, 1, 11, 12, 6, 8, 3, 13},
        {2, 12, 6, 10, 0, 11, 8, 3, 4, 13, 7, 5, 15, 14, 1, 9},
        {12, 5, 1, 15, 14, 13, 4, 10, 0, 7, 6, 3, 9, 2, 8, 11},
        {13, 11, 7, 14, 12, 1, 3, 9, 5, 0, 15, 4, 8, 6, 2, 10},
        {6, 15, 14, 9, 11, 3, 0, 8, 12, 2, 13, 7, 1, 4, 10, 5},
        {10, 2, 8, 4, 7, 6, 1, 5, 15, 11, 9, 14, 3, 12, 13, 0}};

    explicit Blake2b(size_t out_size) {
        std::copy(IV, IV + 8, h_);
        h_[0] ^= 0x01010000 ^ out_size;
    }

    static uint64_t rotated(uint64_t word, int by) { return word >> by | word << (64 - by); }

    static void mix(uint64_t& a, uint64_t& b, uint64_t& c, uint64_t& d, uint64_t x, uint64_t y) {
        a += b + x;
        d = rotated(d ^ a, 32);
        c += d;
        b = rotated(b ^ c, 24);
        a += b + y;
        d = rotated(d ^ a, 16);
        c += d;
        b = rotated(b ^ c, 63);
    }

    template <int R>
    static void round(uint64_t (&v)[16], const uint64_t (&m)[16]) {
        constexpr auto& s = SIGMA[R % 10];
        mix(v[0], v[4], v[8], v[12], m[s[0]], m[s[1]]);
        mix(v[1], v[5], v[9], v[13], m[s[2]], m[s[3]]);
        mix(v[2], v[6], v[10], v[14], m[s[4]], m[s[5]]);
        mix(v[3], v[7], v[11], v[15], m[s[6]], m[s[7]]);
        mix(v[0], v[5], v[10], v[15], m[s[8]], m[s[9]]);
        mix(v[1], v[6], v[11], v[12], m[s[10]], m[s[11]]);
        mix(v[2], v[7], v[8], v[13], m[s[12]], m[s[13]]);
        mix(v[3], v[4], v[9], v[14], m[s[14]], m[s[15]]);
    }

    template <int... R>
    static void rounds(uint64_t (&v)[16], const uint64_t (&m)[16],
                       std::integer_sequence<int, R...>) {
        (round<R>(v, m), ...);
    }

    void compress(const char* block, size_t so_far, bool is_last) {
        uint64_t m[16], v[16];
        std::memcpy(m, block, BLOCK);
        for (uint64_t& word : m) word = le64toh(word);
        std::copy(h_, h_ + 8, v);
        std::copy(IV, IV + 8, v + 8);
        v[12] ^= so_far;
        if (is_last) v[14] = ~v[14];
        rounds(v, m, std::make_integer_sequence<int, 12>());
        for (int i = 0; i < 8; ++i) h_[i] ^= v[i] ^ v[i + 8];
    }

    uint64_t h_[8];
};

}  // namespace ccpipe
