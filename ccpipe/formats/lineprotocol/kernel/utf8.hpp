// Whether bytes are UTF-8, as strictly as Python decides it.
#pragma once

#include <cstdint>

#include "index.hpp"

namespace ccpipe {

inline bool is_utf8(const char* text, const char* end) {
    auto p = reinterpret_cast<const unsigned char*>(text);
    auto stop = reinterpret_cast<const unsigned char*>(end);
    auto follows = [&](int n) {
        if (stop - p <= n) return false;
        for (int i = 1; i <= n; ++i)
            if ((p[i] & 0xC0) != 0x80) return false;
        return true;
    };
    while (p < stop) {
        if (stop - p >= 8 && !(load64(reinterpret_cast<const char*>(p)) & 0x8080808080808080u)) {
            p += 8;
        } else if (*p < 0x80) {
            p += 1;
        } else if (*p >= 0xC2 && *p <= 0xDF && follows(1)) {
            p += 2;
        } else if ((*p & 0xF0) == 0xE0 && follows(2) && !(*p == 0xE0 && p[1] < 0xA0) &&
                   !(*p == 0xED && p[1] > 0x9F)) {
            p += 3;
        } else if (*p >= 0xF0 && *p <= 0xF4 && follows(3) && !(*p == 0xF0 && p[1] < 0x90) &&
                   !(*p == 0xF4 && p[1] > 0x8F)) {
            p += 4;
        } else {
            return false;
        }
    }
    return true;
}

}  // namespace ccpipe
