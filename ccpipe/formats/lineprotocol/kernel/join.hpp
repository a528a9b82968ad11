// Payloads to one payload, so that all are decoded at once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

namespace ccpipe {

struct Slice {
    const char* at;
    size_t size;

    bool ends_in(char last) const { return size && at[size - 1] == last; }
};

// Write the end of each payload once all end in LF, and return the last one.
inline size_t joined_ends(const std::vector<Slice>& payloads, int64_t* ends) {
    size_t total = 0;
    for (const Slice& each : payloads) {
        total += each.size + !each.ends_in('\n');
        *ends++ = static_cast<int64_t>(total);
    }
    return total;
}

// Write the payloads; false if one may include the following ones: an open string or escape.
inline bool join(const std::vector<Slice>& payloads, char* to) {
    for (const Slice& each : payloads) {
        if (std::memchr(each.at, '"', each.size) || each.ends_in('\\')) return false;
        std::memcpy(to, each.at, each.size);
        to += each.size;
        if (!each.ends_in('\n')) *to++ = '\n';
    }
    return true;
}

}  // namespace ccpipe
