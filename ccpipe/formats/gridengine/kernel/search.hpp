// Lines of accounting by job number, without reading them: what `_kernel.pyx` drives for `lines_of_jobs`,
// whose expression in Python is the specification.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <vector>

#include "../../lineprotocol/kernel/scan.hpp"

namespace ccpipe::gridengine {

class Search {
public:
    std::vector<uint64_t> jobs;
    std::vector<int64_t> starts, numbers;  // of the lines found: offset, and number from 1
    int64_t lines = 0;

    // Find all lines of a payload except those whose job number is plainly another one.
    void run(const char* payload, size_t size) {
        const char *stop = payload + size, *end;
        for (const char* p = payload; p < stop; p = end + 1) {
            end = static_cast<const char*>(std::memchr(p, '\n', stop - p));
            ++lines;
            if (end && is_other(p, end)) continue;
            if (!end) end = stop;
            starts.push_back(p - payload);
            numbers.push_back(lines);
        }
    }

private:
    // All lines end in LF, so that a run of digits ends within the line.
    bool is_other(const char* p, const char* end) const {
        static constexpr char key[] = "{\"job_number\":";
        constexpr ptrdiff_t key_size = sizeof key - 1;
        char after = ',';
        if (end - p > key_size && !std::memcmp(p, key, key_size)) {
            p += key_size;
        } else {
            after = ':';
            for (int field = 0; field < 5; ++field) {
                const char* start = p;
                p = static_cast<const char*>(std::memchr(p, ':', end - p));
                if (!p) return false;
                if (field == 1 && p - start == 4 && !std::memcmp(start, "acct", 4)) return false;
                ++p;
            }
        }
        const char* first = p;
        uint64_t number = 0;
        while (is_digit(*p) && p - first < 16) number = 10 * number + (*p++ - '0');
        ptrdiff_t count = p - first;
        if (count == 0 || count > 15 || (*first == '0' && count > 1) || *p != after) return false;
        return std::find(jobs.begin(), jobs.end(), number) == jobs.end();
    }
};

}  // namespace ccpipe::gridengine
